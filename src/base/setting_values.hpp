// The values of settings: from text to a value, and back to text in one spelling. Every parse throws TNT_INVALID_ARGUMENT with
// the variable's name and value and with what was expected.
#pragma once

#include <optional>
#include <string>

#include "base/settings.hpp"

namespace tnt {

[[nodiscard]] int parse_int(const char* name, const char* value, int low);
[[nodiscard]] double parse_seconds(const char* name, const char* value);
[[nodiscard]] std::optional<int> parse_gpus(const char* name, const char* value);
[[nodiscard]] std::optional<int> parse_shards(const char* name, const char* value);
[[nodiscard]] std::optional<tnt_dtype_t> parse_wire_dtype(const char* name, const char* value);
[[nodiscard]] LogLevel parse_level(const char* name, const char* value);
[[nodiscard]] TransportChoice parse_transport(const char* name, const char* value);
[[nodiscard]] DeviceTransport parse_device_transport(const char* name, const char* value);
[[nodiscard]] Overlap parse_overlap(const char* name, const char* value);
void parse_threshold(Settings& settings, const char* name, const char* value);
void parse_on_all_ranks(Settings& settings, const char* name, const char* value);

[[nodiscard]] std::string threshold_text(const Settings& settings);
[[nodiscard]] std::string on_all_ranks_text(const Settings& settings);
[[nodiscard]] std::string gradient_dtype_text(const Settings& settings);
[[nodiscard]] std::string number_or_nothing(const std::optional<int>& number);
[[nodiscard]] const char* level_name(LogLevel level) noexcept;
[[nodiscard]] const char* device_transport_name(DeviceTransport choice) noexcept;

}  // namespace tnt
