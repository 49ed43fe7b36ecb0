// Parses values of the command line. Each function takes the flag, too, and rejects an invalid value with one line that names
// both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/types.hpp"

namespace tnt::bench {

// "-n 0: not a whole number from 1 to 1000". Exits with the code for an invalid command line.
[[noreturn]] void refuse(std::string_view flag, std::string_view value, std::string_view what);

[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator = ',');

[[nodiscard]] std::uint64_t parse_whole(std::string_view flag, const std::string& text, std::uint64_t least,
                                        std::uint64_t most);
[[nodiscard]] double parse_positive(std::string_view flag, const std::string& text);  // "0.5"
[[nodiscard]] double parse_fraction(std::string_view flag, const std::string& text);  // "2%" and "0.02": above 0, below 1

[[nodiscard]] Collective parse_collective(const std::string& text);  // "all_reduce", "allreduce", "all-reduce"
[[nodiscard]] std::vector<tnt_dtype_t> parse_dtypes(std::string_view flag, const std::string& text);  // "f32,bfloat16", "all"
[[nodiscard]] std::vector<tnt_op_t> parse_ops(std::string_view flag, const std::string& text);        // "sum,avg", "all"
[[nodiscard]] std::vector<std::string> parse_backends(std::string_view flag, const std::string& text);
[[nodiscard]] bool is_op(std::string_view word);

// Rejects a directory, and a file in a directory that does not exist.
void check_file_name(std::string_view flag, const std::string& text);

// The index of text in a list of choices; rejects any other text.
[[nodiscard]] std::size_t parse_choice(std::string_view flag, const std::string& text, const std::vector<std::string>& choices);

}  // namespace tnt::bench
