#include "run/hosts.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace tnt::run {
namespace {

constexpr int max_slots = 1 << 20;

int parse_slots(std::string_view text, std::string_view word) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc() || end != text.data() + text.size() || slots < 1 || slots > max_slots) {
    throw std::runtime_error(fmt::format("{}: the number of slots is to be 1 or more", word));
  }
  return slots;
}

// "node1" or "node1:4"
Host parse_host(std::string_view word) {
  const std::size_t colon = word.find(':');
  Host host{.name = std::string(word.substr(0, colon))};
  if (host.name.empty() || host.name.front() == '-') throw std::runtime_error(fmt::format("'{}' names no host", word));
  if (colon != std::string_view::npos) host.slots = parse_slots(word.substr(colon + 1), word);
  return host;
}

void add(std::vector<Host>& hosts, const Host& host) {
  const auto known = std::ranges::find(hosts, host.name, &Host::name);
  if (known == hosts.end()) {
    hosts.push_back(host);
  } else {
    known->slots += host.slots;
  }
  if (count_slots(hosts) > max_slots) throw std::runtime_error(fmt::format("more than {} slots", max_slots));
}

Host parse_line(const std::string& line) {
  constexpr std::string_view slots = "slots=";
  std::istringstream words(line);
  std::string word;
  words >> word;
  Host host = parse_host(word);
  while (words >> word) {
    if (!word.starts_with(slots)) throw std::runtime_error(fmt::format("'{}' is not slots=N", word));
    host.slots = parse_slots(std::string_view(word).substr(slots.size()), word);
  }
  return host;
}

}  // namespace

std::vector<Host> parse_host_list(const std::string& list) {
  std::vector<Host> hosts;
  std::size_t begin = 0;
  while (begin <= list.size()) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    add(hosts, parse_host(std::string_view(list).substr(begin, end - begin)));
    begin = end + 1;
  }
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  std::vector<Host> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      add(hosts, parse_line(line));
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
  if (hosts.empty()) throw std::runtime_error(fmt::format("{}: names no host", path));
  return hosts;
}

int count_slots(const std::vector<Host>& hosts) {
  int slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  return slots;
}

std::vector<Host> take_slots(const std::vector<Host>& hosts, int ranks) {
  std::vector<Host> taken;
  for (const Host& host : hosts) {
    if (ranks == 0) break;
    taken.push_back({host.name, std::min(host.slots, ranks)});
    ranks -= taken.back().slots;
  }
  return taken;
}

bool are_here(const std::vector<Host>& hosts) {
  std::array<char, 256> text{};
  (void)gethostname(text.data(), text.size() - 1);
  const std::string own(text.data());
  const std::string brief = own.substr(0, own.find('.'));
  return std::ranges::all_of(hosts, [&](const Host& host) {
    return host.name == own || host.name == brief || host.name == "localhost" || host.name == "127.0.0.1";
  });
}

}  // namespace tnt::run
