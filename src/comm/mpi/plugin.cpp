// The entry of libtarantella_mpi.so.
#include "comm/mpi/plugin.hpp"

#include "comm/mpi/mpi_network.hpp"

namespace tnt {
namespace {

Network* open(tnt_status_t* status, std::string* message) {
  try {
    return new MpiNetwork();
  } catch (const Error& error) {
    *status = error.status();
    *message = error.what();
  } catch (const std::exception& error) {
    *status = TNT_SYSTEM;
    *message = error.what();
  }
  return nullptr;
}

constexpr MpiPlugin plugin{TNT_VERSION_TEXT, open};

}  // namespace
}  // namespace tnt

extern "C" TNT_EXPORT const tnt::MpiPlugin* tnt_mpi_plugin() { return &tnt::plugin; }
