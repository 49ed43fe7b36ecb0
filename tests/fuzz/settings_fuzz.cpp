// Settings: each line is NAME=VALUE, as in an environment.
#include <map>

#include "base/settings.hpp"
#include "common/error.hpp"
#include "fuzz/fuzz.hpp"

namespace {

using tnt::fuzz::require;

void refused(const tnt::Error& error) {
  require(error.status() == TNT_INVALID_ARGUMENT, "a wrong setting is TNT_INVALID_ARGUMENT");
  tnt::fuzz::require_sentence(error.what());
}

// The one spelling of a value is a value, and its own spelling; that of a threshold is in bytes, and a value in kilobytes.
void check_spelling(const std::string& name, const std::string& value) {
  std::string spelled;
  try {
    spelled = tnt::canonical_setting(name.c_str(), value.c_str());
  } catch (const tnt::Error& error) {
    return refused(error);
  }
  if (name == "TNT_FUSION_THRESHOLD") {
    const bool number = spelled.find_first_not_of("0123456789") == std::string::npos && !spelled.empty();
    return require(number || spelled == "inf" || spelled == "autotune", "a threshold is a number of bytes, or a word");
  }
  require(tnt::canonical_setting(name.c_str(), spelled.c_str()) == spelled, "the one spelling of a value is its own");
}

void check_place(const tnt::Settings& settings) {
  require(settings.rank >= 0 && settings.rank < settings.ranks, "a rank is below the number of ranks");
  require(settings.timeout > 0 && settings.join_seconds() > 0, "a deadline is in the future");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::map<std::string, std::string> environment;
  for (const std::string& line : tnt::fuzz::parts_of(tnt::fuzz::text_of(data, size), '\n')) {
    const std::string plain = line.substr(0, line.find('\0'));  // no variable has a zero
    const std::size_t equals = plain.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = plain.substr(0, equals);
    const std::string value = plain.substr(equals + 1);
    check_spelling(name, value);
    environment[name] = value;
  }
  try {
    check_place(tnt::read_settings([&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    }));
  } catch (const tnt::Error& error) {
    refused(error);
  }
  return 0;
}
