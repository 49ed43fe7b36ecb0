// JSON Lines on standard output, from rank 0; and the check of C API calls.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tarantella/tarantella.h"

namespace tnt::bench {

void print_line(const nlohmann::ordered_json& line);

// The properties of the device: {"case": "machine", ...}
[[nodiscard]] nlohmann::ordered_json describe_device(int device);

void check_call(tnt_status_t status, const char* call);  // throws Failure with the library's message

}  // namespace tnt::bench

#define TNT_CHECK(call) ::tnt::bench::check_call(call, #call)
