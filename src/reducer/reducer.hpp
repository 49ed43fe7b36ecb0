// The reducer of gradients in host memory. Buckets are packed, reduced and unpacked in one fixed order, by a thread of the
// progress engine while the caller goes on, or by the caller when it waits (overlap_tuner.hpp).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/trace.hpp"
#include "comm/communicator.hpp"
#include "reducer/gradient_reducer.hpp"
#include "reducer/overlap_tuner.hpp"
#include "reducer/plan.hpp"
#include "reducer/progress_engine.hpp"
#include "reducer/step_state.hpp"

namespace tnt {

struct ReducerOptions {
  std::string name = "gradients";
  double timeout = 600.0;  // seconds, every wait
  Overlap overlap = Overlap::automatic;
  // Is given the communicator when the reducer ends between steps, so that another reducer can use it. May be empty.
  std::function<void(std::unique_ptr<Communicator>)> recycle = {};
};

// All ranks reduce the buckets in the order 0, 1, ..., whatever the order of the gradients.
class Reducer final : public GradientReducer, private ProgressEngine::Client {
 public:
  // comm: for this reducer alone. trace may be null.
  Reducer(std::unique_ptr<Communicator> comm, Plan plan, ReducerOptions options, std::shared_ptr<ProgressEngine> engine,
          Trace* trace);
  ~Reducer() override;

  [[nodiscard]] const Plan& plan() const noexcept override { return plan_; }
  [[nodiscard]] const std::string& description(std::size_t bucket) const override { return descriptions_[bucket]; }

  // Allowed between steps; an empty hook removes it. The thread that reduces the bucket calls it without a lock. With a hook,
  // buckets are first packed into separate memory: this costs the size of the largest bucket and one copy each way.
  void set_hook(BucketHook hook) override;
  void ready(std::size_t tensor, const TensorView& view, StreamHandle stream = nullptr) override;
  void wait_bucket(std::size_t bucket, StreamHandle stream = nullptr) override;
  void finish(StreamHandle stream = nullptr) override;
  void check() override;
  [[nodiscard]] void* gradient_buffer(std::size_t tensor) override;  // TNT_UNSUPPORTED
  [[nodiscard]] std::uint64_t tensor_steps(std::size_t tensor) const override;
  [[nodiscard]] ReducerStats stats() const override;

 private:
  using Stage = StepState::Stage;
  struct BucketState {              // of one bucket
    std::vector<TensorView> views;  // in the order of the bucket
    std::vector<int> owners;        // of the views; empty: all ranks need all sums
    std::int64_t full_ns = 0;       // when it became full
  };

  void serve() override;
  [[nodiscard]] bool is_overdue() const noexcept override;
  [[nodiscard]] bool next_is_due() const;
  [[nodiscard]] bool next_is_for_thread() const;
  void announce_next();
  void reduce_next(std::unique_lock<std::mutex>& lock);
  void reduce_bucket(std::size_t bucket, WaitHint wait_hint, PhaseObserver& observer);
  void sum(std::size_t bucket, const FusedBuffer& fused, const CallContext& call);
  void reduce_with_hook(std::size_t bucket, const FusedBuffer& fused, const CallContext& call);
  void call_hook(const PackedBucket& packed);
  [[nodiscard]] Error tell_others(std::size_t bucket, const std::exception& failure);
  void end_step();
  void count_step(std::size_t bucket, std::int64_t begin_ns, const std::array<std::int64_t, 4>& phase_ns);
  void check_stream(StreamHandle stream) const;
  void throw_if_failed() const;
  void wait_until_done(std::unique_lock<std::mutex>& lock, std::size_t bucket);

  std::unique_ptr<Communicator> comm_;
  const Plan plan_;
  const ReducerOptions options_;
  Trace* const trace_;
  OverlapTuner overlap_;
  const std::size_t first_inline_;  // this bucket and all later ones are left to waiting callers

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for callers
  StepState steps_;
  std::vector<BucketState> buckets_;
  std::vector<std::string> descriptions_;  // of each bucket
  std::vector<std::string> details_;       // with the reducer's name, for errors
  std::size_t next_ = 0;                   // the next bucket to reduce
  bool reducing_ = false;                  // a thread reduces it
  std::atomic<std::int64_t> due_ns_{0};    // since when it is due and left to callers; 0: it is not
  int waiting_ = 0;                        // sleeping callers
  BucketHook hook_;
  std::vector<std::byte> packed_;  // for the hook: as large as the largest bucket
  std::optional<Error> error_;
  bool stopping_ = false;
  ReducerStats stats_;
  std::int64_t last_full_ns_ = 0;
  std::shared_ptr<ProgressEngine> engine_;
};

}  // namespace tnt
