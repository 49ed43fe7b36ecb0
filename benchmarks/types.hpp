// The types of tnt-bench: what is measured, with which backend, and what a measurement is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tarantella/tarantella.h"

namespace tnt::bench {

enum class Collective {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  reduce,
  gather,
  scatter,
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
  sendrecv,
  barrier,
  bucket,
  overlap
};
enum class Cache { hot, rotate };
enum class Place { out, in, both };
enum class Format { table, jsonl, csv, md };

// Bytes as in nccl-tests: the vector for all_reduce, reduce, broadcast and sendrecv; the total over ranks for all_gather,
// reduce_scatter, all_to_all, gather, scatter and the forms with v.
struct Size {
  std::size_t bytes = 0;
  std::string label{};  // a tensor's name in a model's list; empty for plain sizes
};

struct Options {
  Collective collective = Collective::all_reduce;
  std::vector<std::string> backends{"shm"};
  std::optional<std::string> against{};  // "mpi", "gloo", "nccl"; simulated: "ompi", "mpich", "mvapich2", "impi"
  std::string platform{};                // the file of a simulated machine; empty: this machine
  std::optional<int> ranks{};            // number of ranks to fork on this host
  std::vector<Size> sizes{};
  std::string model{};  // for bucket and overlap: "resnet50"; empty: equal tensors of the given sizes
  std::size_t tensors = 8;
  std::vector<tnt_dtype_t> dtypes{TNT_FLOAT32};
  std::vector<tnt_op_t> ops{TNT_SUM};
  int root = 0;
  std::optional<int> iterations{};  // fixed number; otherwise by confidence
  int warmup = 5;
  double target = 0.02;   // relative half-width of the 95 % confidence interval of the median
  double max_time = 1.0;  // seconds for a row
  double timeout = 60.0;  // seconds for a wait
  Cache cache = Cache::rotate;
  Place place = Place::both;
  std::size_t unalign = 0;  // offset of the buffers, in elements
  bool check_exact = true;
  bool check_accuracy = true;
  bool check_repeat = true;
  int check_runs = 1;                  // of each check
  std::optional<double> limit_gbps{};  // given bandwidth of the memory
  bool measure_limit = true;
  std::size_t fusion_threshold = SIZE_MAX;              // bytes; bucket and overlap
  tnt_dtype_t wire_dtype = TNT_FLOAT32;                 // wire type of gradients
  tnt_determinism_t determinism = TNT_DETERMINISM_RUN;  // of gradients
  double compute_ms = 50.0;                             // overlap: duration of the synthetic backward pass
  Format format = Format::table;
  std::string output{};  // empty: standard output
  bool dry_run = false;
  std::uint64_t seed = 1;
};

// The distribution of one operation's time over iterations, in microseconds; each time is the maximum over ranks.
struct Times {
  std::size_t iterations = 0;
  double min = 0;
  double p50 = 0;
  double p95 = 0;
  double max = 0;
  double first = 0;  // the first call of this size, before the warm-up
};

// The result of the checks of one measurement. text: empty, or the error: where, what, and a guess at the cause.
struct Verdict {
  std::uint64_t wrong = 0;    // inexact elements
  std::string check = "off";  // "ok", "wrong", "off"
  double max_ulp = 0;         // random input against float64
  std::uint64_t hash = 0;     // of the result of random input
  std::string text{};
};

// One measurement: a line of the output. Missing figures are nullopt ("-" in tables, null in JSON).
struct Row {
  Collective collective = Collective::all_reduce;
  std::string backend{};
  int ranks = 1;
  std::size_t bytes = 0;
  std::size_t count = 0;  // the value of the column "count" in nccl-tests
  std::string label{};
  tnt_dtype_t dtype = TNT_FLOAT32;
  tnt_op_t op = TNT_SUM;
  int root = -1;
  bool in_place = false;
  Cache cache = Cache::rotate;
  std::size_t unalign = 0;
  Times times{};
  std::optional<double> algbw_gbps{};  // 1e9 bytes per second
  std::optional<double> busbw_gbps{};
  std::optional<double> limit_percent{};
  Verdict verdict{};
  std::string against{};
  std::optional<Times> against_times{};
  std::optional<double> ratio{};  // the reference's p50 divided by ours: above 1, ours is faster
  // for bucket and overlap: their own figures in the order of display, such as {"pack_us", 12.3}
  std::vector<std::pair<std::string, double>> extra{};
};

// Facts about the machine and the versions: the head of every output.
struct Header {
  std::string version{};                                     // of the library
  std::vector<std::pair<std::string, std::string>> facts{};  // {"cpu", "AMD EPYC"}, {"mpi", "Open MPI 4.1.4"}, ...
};

[[nodiscard]] const char* name(Collective collective);
[[nodiscard]] const char* name(Cache cache);
[[nodiscard]] const char* name(tnt_dtype_t dtype);  // "float32"
[[nodiscard]] const char* name(tnt_op_t op);        // "sum"
// Floating-point types have no logical and no bitwise operations.
[[nodiscard]] bool has_op(tnt_dtype_t dtype, tnt_op_t op);

// Ends the benchmark with one line on standard error and exit code 2 (usage) or 1.
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
