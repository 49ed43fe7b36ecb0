#include "common/error.hpp"

#include <cerrno>
#include <new>
#include <system_error>

namespace tnt {

Error to_error(const std::exception& exception) {
  if (const auto* ours = dynamic_cast<const Error*>(&exception)) return *ours;
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) return {TNT_SYSTEM, "out of memory"};
  return {TNT_SYSTEM, exception.what()};
}

void fail_errno(const std::string& what) {
  const int reason = errno;
  fail(TNT_SYSTEM, "{}: {}", what, std::generic_category().message(reason));
}

const char* status_name(tnt_status_t status) noexcept {
  switch (status) {
    case TNT_SUCCESS: return "TNT_SUCCESS";
    case TNT_INVALID_ARGUMENT: return "TNT_INVALID_ARGUMENT";
    case TNT_MISMATCH: return "TNT_MISMATCH";
    case TNT_TIMEOUT: return "TNT_TIMEOUT";
    case TNT_PEER_LOST: return "TNT_PEER_LOST";
    case TNT_ABORTED: return "TNT_ABORTED";
    case TNT_SYSTEM: return "TNT_SYSTEM";
    case TNT_UNSUPPORTED: return "TNT_UNSUPPORTED";
  }
  return "unknown status";
}

}  // namespace tnt
