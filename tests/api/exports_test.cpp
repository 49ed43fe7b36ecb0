// The binary interface: the library's name has the version of the API, and it and its plug-ins export nothing but that.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "support/symbols.hpp"
#include "tarantella/tarantella.h"

namespace {

using tnt::testing::exported_symbols;
using tnt::testing::output_of;

// As in CMakeLists.txt: before 1.0 each minor version has an API of its own.
std::string abi_version() {
  const std::string major = std::to_string(TNT_VERSION_MAJOR);
  return TNT_VERSION_MAJOR > 0 ? major : major + "." + std::to_string(TNT_VERSION_MINOR);
}

TEST(Exports, TheNameHasTheVersion) {
  const std::string dynamic = output_of(TNT_READELF " --dynamic " TNT_LIBRARY);
  EXPECT_NE(dynamic.find("Library soname: [libtarantella.so." + abi_version() + "]"), std::string::npos) << dynamic;
}

TEST(Exports, AreVersionedFunctionsOfTheHeader) {
  const std::set<std::string> symbols = exported_symbols(TNT_LIBRARY);
  EXPECT_GT(symbols.size(), 40U);
  for (const std::string& symbol : symbols) {
    EXPECT_EQ(symbol.rfind("tnt_", 0), 0U) << symbol;
    EXPECT_NE(symbol.find("@@TARANTELLA_" + abi_version()), std::string::npos) << symbol;
  }
}

#ifdef TNT_MPI_PLUGINS
TEST(Exports, APlugInHasOneAndNeedsNoMpiByName) {
  for (const std::string plugin : {TNT_MPI_PLUGINS}) {
    EXPECT_EQ(exported_symbols(plugin.c_str()), std::set<std::string>{"tnt_mpi_plugin@@TARANTELLA_" + abi_version()});
    const std::string dynamic = output_of(TNT_READELF " --dynamic " + plugin);
    EXPECT_EQ(dynamic.find("[libmpi"), std::string::npos) << dynamic;
  }
}
#endif

}  // namespace
