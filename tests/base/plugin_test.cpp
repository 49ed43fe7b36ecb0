// The error messages for plug-ins that cannot be loaded. Loading has its own tests (device/cuda_plugin_test, mpi).
#include "base/plugin.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/error.hpp"

namespace tnt {
namespace {

// In the directory of this program, which contains the library here.
std::filesystem::path beside(const char* file) { return std::filesystem::read_symlink("/proc/self/exe").parent_path() / file; }

std::string refusal(const PluginName& name) {
  try {
    (void)load_plugin(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), TNT_UNSUPPORTED);
    return error.what();
  }
  ADD_FAILURE() << "loaded";
  return {};
}

TEST(Plugin, OneThatIsNotThereIsNamedWithWhatToDo) {
  EXPECT_EQ(refusal({.file = "libtarantella_none.so", .symbol = "none", .missing = "tests need: do this", .unloadable = ""}),
            "this installation of Tarantella has no libtarantella_none.so, which tests need: do this");
}

TEST(Plugin, OneThatDoesNotLoadIsNamedWithTheLoadersReason) {
  const std::string file = "libtarantella_broken_" + std::to_string(getpid()) + ".so";
  std::ofstream(beside(file.c_str())) << "no library";
  const std::string message = refusal({.file = file.c_str(), .symbol = "none", .missing = "", .unloadable = "do that"});
  std::filesystem::remove(beside(file.c_str()));
  EXPECT_EQ(message.find("cannot load " + file + ": "), 0U) << message;
  EXPECT_NE(message.find(": do that"), std::string::npos) << message;
}

}  // namespace
}  // namespace tnt
