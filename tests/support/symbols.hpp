// What a shared library defines and says of itself, from readelf. TNT_READELF: the program.
#pragma once

#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <sstream>
#include <string>

namespace tnt::testing {

inline std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), pipe.get()) != nullptr) text += part.data();
  return text;
}

// The names of all exported symbols with their versions, "tnt_init@@VERSION". Without the absolute ones, which name versions.
inline std::set<std::string> exported_symbols(const std::string& library) {
  std::istringstream symbols(output_of(TNT_READELF " --dyn-syms --wide " + library));
  std::set<std::string> defined;
  for (std::string line; std::getline(symbols, line);) {
    std::istringstream words(line);
    std::string number, value, size, type, binding, visibility, section, name;
    words >> number >> value >> size >> type >> binding >> visibility >> section >> name;
    const bool outside = binding == "GLOBAL" || binding == "WEAK" || binding == "UNIQUE";
    if (outside && visibility == "DEFAULT" && section != "UND" && section != "ABS") defined.insert(name);
  }
  return defined;
}

}  // namespace tnt::testing
