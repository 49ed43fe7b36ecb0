// The words of tnt-bench: what is measured, by whom, and what a measurement is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tarantella/tarantella.h"

namespace tnt::bench {

enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, sendrecv, barrier, bucket, overlap };
enum class Cache { hot, rotate };
enum class Place { out, in, both };
enum class Format { table, jsonl, csv, md };

// Bytes as nccl-tests counts them: the vector for all_reduce, broadcast and sendrecv, the total over ranks for all_gather,
// reduce_scatter and all_to_all.
struct Size {
  std::size_t bytes = 0;
  std::string label{};  // a tensor's name in a model's list; empty for plain sizes
};

struct Options {
  Collective collective = Collective::all_reduce;
  std::vector<std::string> backends{"shm"};
  std::optional<std::string> against{};  // "mpi", "gloo", "nccl"
  std::optional<int> ranks{};            // fork so many on this host
  std::vector<Size> sizes{};
  std::string model{};  // of bucket and overlap: "resnet50"; empty: sizes, of so many equal tensors
  std::size_t tensors = 8;
  std::vector<tnt_dtype_t> dtypes{TNT_FLOAT32};
  std::vector<tnt_op_t> ops{TNT_SUM};
  int root = 0;
  std::optional<int> iterations{};  // fixed number; else by confidence
  int warmup = 5;
  double target = 0.02;   // half-width of the 95 % confidence interval of the median, relative
  double max_time = 1.0;  // seconds for one row
  double timeout = 60.0;  // seconds for any wait
  Cache cache = Cache::rotate;
  Place place = Place::both;
  std::size_t unalign = 0;  // elements by which buffers are shifted
  bool check_exact = true;
  bool check_accuracy = true;
  bool check_repeat = true;
  std::optional<double> limit_gbps{};  // the memory's bandwidth, given
  bool measure_limit = true;
  std::size_t fusion_threshold = SIZE_MAX;              // bytes; bucket and overlap
  tnt_dtype_t wire_dtype = TNT_FLOAT32;                 // in which gradients are sent
  tnt_determinism_t determinism = TNT_DETERMINISM_RUN;  // of gradients
  double compute_ms = 50.0;                             // overlap: the synthetic backward pass of one rank
  Format format = Format::table;
  std::string output{};  // empty: standard output
  bool dry_run = false;
  std::uint64_t seed = 1;
};

// The distribution of one operation's time over iterations: for each, the maximum over ranks. Microseconds.
struct Times {
  std::size_t iterations = 0;
  double min = 0;
  double p50 = 0;
  double p95 = 0;
  double max = 0;
  double first = 0;  // the first call of this size, before the warm-up
};

// What the checks of one measurement found. text: empty, or where, what and a guess why, for people.
struct Verdict {
  std::uint64_t wrong = 0;    // elements that are not exactly right
  std::string check = "off";  // "ok", "wrong", "off"
  double max_ulp = 0;         // random input against float64
  std::uint64_t hash = 0;     // of the result of random input
  std::string text{};
};

// One measurement: a line of the output. Absent figures are nullopt ("-" in tables, null in JSON).
struct Row {
  Collective collective = Collective::all_reduce;
  std::string backend{};
  int ranks = 1;
  std::size_t bytes = 0;
  std::size_t count = 0;  // elements of the buffer that count's column shows in nccl-tests
  std::string label{};
  tnt_dtype_t dtype = TNT_FLOAT32;
  tnt_op_t op = TNT_SUM;
  int root = -1;
  bool in_place = false;
  Cache cache = Cache::rotate;
  std::size_t unalign = 0;
  Times times{};
  std::optional<double> algbw_gbps{};  // 1e9 bytes a second
  std::optional<double> busbw_gbps{};
  std::optional<double> limit_percent{};
  Verdict verdict{};
  std::string against{};
  std::optional<Times> against_times{};
  std::optional<double> ratio{};  // the peer's p50 over ours: above 1, ours is faster
  // bucket and overlap: named figures of their own, in the order in which they are shown: {"pack_us", 12.3}
  std::vector<std::pair<std::string, double>> extra{};
};

// What was measured where: the head of every output.
struct Header {
  std::string version{};                                     // of the library
  std::vector<std::pair<std::string, std::string>> facts{};  // {"cpu", "AMD EPYC"}, {"mpi", "Open MPI 4.1.4"}, ...
};

[[nodiscard]] const char* name(Collective collective);
[[nodiscard]] const char* name(Cache cache);
[[nodiscard]] const char* name(tnt_dtype_t dtype);  // "float32"
[[nodiscard]] const char* name(tnt_op_t op);        // "sum"

// Anything that ends the benchmark with one line on standard error and exit code 2 (usage) or 1.
class Failure : public std::exception {
 public:
  explicit Failure(std::string text, int code = 1) : text_(std::move(text)), code_(code) {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  std::string text_{};
  int code_;
};

}  // namespace tnt::bench
