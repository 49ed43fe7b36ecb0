// An error planted into the library's results, between two real ranks, is found and named by the benchmark's checks.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/element.hpp"
#include "benchmarks/runs.hpp"

namespace tnt::bench {
namespace {

constexpr std::size_t count = 20000;

using Bug = std::function<void(int rank, const float* in, float* out)>;

// The library with an error added to its results.
class Planted final : public Backend {
 public:
  Planted(Backend& real, int rank, Bug bug) : real_(real), rank_(rank), bug_(std::move(bug)) {}
  [[nodiscard]] std::string name() const override { return "planted"; }
  [[nodiscard]] std::string version() const override { return real_.version(); }
  [[nodiscard]] bool supports(Collective collective, tnt_dtype_t dtype, tnt_op_t op) const override {
    return real_.supports(collective, dtype, op);
  }
  void run(Collective collective, const void* in, void* out, std::size_t n, tnt_dtype_t dtype, tnt_op_t op, int root) override {
    const std::vector<float> before(static_cast<const float*>(in), static_cast<const float*>(in) + n);
    real_.run(collective, in, out, n, dtype, op, root);
    bug_(rank_, before.data(), static_cast<float*>(out));
  }

 private:
  Backend& real_;
  int rank_;
  Bug bug_;
};

// 0: both ranks found the error and reported it with these words.
int hunt(const Bug& bug, const std::string& words) {
  const Options options{.ranks = 2};
  const auto nothing = [](const char*) -> const char* { return nullptr; };
  return run_forked(find_start(options, nothing), [&](const Start& start) {
    const Team team(start, options);
    OpenedBackend real = open_tarantella("shm", team);
    Planted planted(*real.backend, team.rank(), bug);
    const Row row{.ranks = 2, .bytes = count * sizeof(float), .count = count};
    const Verdict verdict = verify(planted, row, options, team);
    if (verdict.check == "wrong" && verdict.text.find(words) != std::string::npos) return 0;
    fprintf(stderr, "check %s, text '%s'\n", verdict.check.c_str(), verdict.text.c_str());
    return 1;
  });
}

TEST(PlantedBug, none) {
  EXPECT_EQ(hunt([](int, const float*, float*) {}, ""), 1) << "a correct library was called wrong";
}

TEST(PlantedBug, a_rank_whose_slice_is_dropped) {
  const Bug bug = [](int rank, const float* in, float* out) {
    if (rank != 0) return;
    for (std::size_t i = count / 2; i < count; ++i) out[i] -= in[i];
  };
  EXPECT_EQ(hunt(bug, "rank 0 is missing"), 0);
}

TEST(PlantedBug, a_stale_buffer) {
  std::vector<float> kept;
  const Bug bug = [&](int rank, const float*, float* out) {
    if (rank != 1) return;
    std::vector<float> now(out, out + count);
    if (!kept.empty()) std::memcpy(out, kept.data(), 100 * sizeof(float));
    kept = now;
  };
  EXPECT_EQ(hunt(bug, "stale"), 0);
}

TEST(PlantedBug, off_by_one) {
  const Bug bug = [](int, const float*, float* out) { std::memmove(out + 1, out, (count - 1) * sizeof(float)); };
  EXPECT_EQ(hunt(bug, "shifted by 1 element"), 0);
}

TEST(PlantedBug, a_write_behind_the_end) {
  const Bug bug = [](int rank, const float*, float* out) {
    if (rank == 1) out[count + 1] = 1;
  };
  EXPECT_EQ(hunt(bug, "after a buffer were overwritten"), 0);
}

TEST(PlantedBug, other_bits_on_another_rank) {
  const Bug bug = [](int rank, const float*, float* out) {
    if (rank == 1) out[5] = std::nextafter(out[5], 100.0F);
  };
  EXPECT_EQ(hunt(bug, "element 5"), 0);
}

}  // namespace
}  // namespace tnt::bench
