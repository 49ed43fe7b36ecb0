// The text of a small file, such as those of /proc.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace tnt {

// What can be read of it: nothing if it is not there, or if its process ends meanwhile. An iterator over the stream's buffer
// would throw then.
inline std::string read_text(const std::filesystem::path& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace tnt
