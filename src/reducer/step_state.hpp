// The rules of a step, for host and device reducers: which gradients are ready, which buckets are full, and when a step may
// end. Not thread-safe; the reducer holds its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "reducer/plan.hpp"

namespace tnt {

// A bucket goes through collecting -> full -> done. Its next step may begin after a wait for it, so that marking a gradient
// ready twice is an error in every timing. Buckets may be in different steps.
class StepState {
 public:
  explicit StepState(const Plan& plan);  // plan must outlive this object

  enum class Stage { idle, collecting, full, done };
  struct Slot {  // the position of a tensor
    std::size_t bucket;
    std::size_t position;
  };
  // Throws TNT_INVALID_ARGUMENT if the plan has no such tensor.
  [[nodiscard]] Slot slot(std::size_t tensor) const;
  [[nodiscard]] Stage stage(std::size_t bucket) const noexcept { return buckets_[bucket].stage; }
  [[nodiscard]] std::uint64_t steps(std::size_t bucket) const noexcept { return buckets_[bucket].steps; }
  [[nodiscard]] bool in_step(std::size_t bucket) const noexcept;  // has ready gradients and is not done

  // Throws TNT_INVALID_ARGUMENT if the tensor is already ready. Changes nothing.
  void check_not_ready(Slot slot) const;
  // After check_not_ready. True: the bucket is now full.
  bool mark_ready(Slot slot);
  void done(std::size_t bucket);
  void waited_for(std::size_t bucket);
  void finished(std::size_t bucket);

  // Both throw TNT_INVALID_ARGUMENT and name a tensor that is not ready: if the bucket is not in the plan or has no gradient;
  // if a step cannot end yet.
  void check_begun(std::size_t bucket) const;
  void check_can_finish() const;
  [[nodiscard]] std::string missing_tensor(std::size_t index) const;  // of a bucket
  // Throws TNT_INVALID_ARGUMENT if a bucket is in a step. what: "a hook cannot be set"; names: of the buckets.
  void check_between_steps(std::string_view what, const std::vector<std::string>& names) const;

 private:
  struct Bucket {
    Stage stage = Stage::idle;
    std::vector<bool> ready;  // in the order of the bucket
    std::size_t n_ready = 0;
    std::uint64_t steps = 0;
    // the caller knows that the last step is done, so a gradient that comes now belongs to a new step
    bool waited_for = true;
    bool finished = true;  // finish() has ended the last step
  };
  [[nodiscard]] bool begins(const Bucket& bucket) const noexcept;

  const Plan& plan_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
};

}  // namespace tnt
