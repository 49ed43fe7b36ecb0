#include "bootstrap/unique_id.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "bootstrap/local_socket.hpp"
#include "bootstrap/tcp_socket.hpp"
#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::string_view local_prefix = "tarantella-";
constexpr std::size_t token_length = 32;  // of random_name

}  // namespace

tnt_unique_id_t make_unique_id(const std::string& rendezvous) {
  if (!rendezvous.empty()) (void)parse_tcp_address(rendezvous);
  std::string text = rendezvous.empty() ? std::string(local_prefix) + random_name() : rendezvous;
  text += ' ' + random_name();
  tnt_unique_id_t id{};
  if (text.size() >= sizeof(id.text)) {
    fail(TNT_INVALID_ARGUMENT, "rendezvous {}: longer than {} bytes", rendezvous, sizeof(id.text) - token_length - 2);
  }
  std::copy(text.begin(), text.end(), std::begin(id.text));
  return id;
}

MeetingPlace read_unique_id(const tnt_unique_id_t& id) {
  const std::string_view text(id.text, static_cast<std::size_t>(std::find(id.text, std::end(id.text), '\0') - id.text));
  const std::size_t blank = std::min(text.find(' '), text.size());
  MeetingPlace place{std::string(text.substr(0, blank)), std::string(text.substr(std::min(blank + 1, text.size())))};
  const bool is_hexadecimal = place.token.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (place.token.size() != token_length || !is_hexadecimal ||
      !(place.rendezvous.starts_with(local_prefix) || is_tcp_address(place.rendezvous))) {
    fail(TNT_INVALID_ARGUMENT, "id is not one that tnt_unique_id has made: pass on all {} bytes of it, or its text",
         sizeof(id.text));
  }
  if (is_tcp_address(place.rendezvous)) (void)parse_tcp_address(place.rendezvous);
  return place;
}

}  // namespace tnt
