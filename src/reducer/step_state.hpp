// The rules of a step, for gradients in host and in device memory alike: which were handed over, which buckets are full, what
// has to come before a step may end. Not thread-safe: its reducer has the lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reducer/plan.hpp"

namespace tnt {

// A bucket goes through collecting -> full -> done; its next step may begin when somebody has waited for it, so that handing
// over twice is an error whatever the timing. Buckets need not be in the same step.
class StepState {
 public:
  explicit StepState(const Plan& plan);  // which has to live as long

  enum class Stage { idle, collecting, full, done };
  struct Slot {  // where a tensor lies
    std::size_t bucket;
    std::size_t position;
  };
  // Throws TNT_INVALID_ARGUMENT if the plan has no such tensor.
  [[nodiscard]] Slot slot(std::size_t tensor) const;
  [[nodiscard]] Stage stage(std::size_t bucket) const noexcept { return buckets_[bucket].stage; }
  [[nodiscard]] std::uint64_t steps(std::size_t bucket) const noexcept { return buckets_[bucket].steps; }
  [[nodiscard]] bool in_step(std::size_t bucket) const noexcept;  // gradients have come, and it is not done

  // Throws TNT_INVALID_ARGUMENT if the tensor was handed over already. Nothing is changed then.
  void check_not_ready(Slot slot) const;
  // After check_new. True: the bucket is full now.
  bool mark_ready(Slot slot);
  void done(std::size_t bucket);
  void waited_for(std::size_t bucket);
  void finished(std::size_t bucket);

  // Throw TNT_INVALID_ARGUMENT that names a tensor which was not handed over: if the bucket is not in the plan or was never
  // begun; if a step cannot end yet.
  void check_begun(std::size_t bucket) const;
  void check_can_finish() const;
  [[nodiscard]] std::string missing_tensor(std::size_t index) const;  // of a bucket

 private:
  struct Bucket {
    Stage stage = Stage::idle;
    std::vector<bool> ready;  // in the bucket's order
    std::size_t n_ready = 0;
    std::uint64_t steps = 0;
    bool waited_for = true;  // the caller knows that the last step is done: what is handed over next is of a new one
    bool finished = true;    // by finish(): the last step has ended
  };
  [[nodiscard]] bool begins(const Bucket& bucket) const noexcept;

  const Plan& plan_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
};

}  // namespace tnt
