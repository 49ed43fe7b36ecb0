// What the fuzz targets share. A target takes any bytes. It must refuse them by our error or accept them, and what it accepts
// must keep the promises that the target checks. Anything else ends the process: libFuzzer then stores the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tnt::fuzz {

inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(data), size);
}

inline void require(bool promise, const char* what) {
  if (promise) return;
  (void)std::fprintf(stderr, "a promise is broken: %s\n", what);
  std::abort();
}

// An error is one sentence for a user: neither empty nor endless.
inline void require_sentence(const std::string& message) {
  constexpr std::size_t longest = 16384;  // the input is named in it, sometimes twice
  require(!message.empty() && message.size() < longest, "an error is one sentence");
}

// The text up to each separator; an empty text has one empty part.
inline std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace tnt::fuzz
