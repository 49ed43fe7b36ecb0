#include "reducer/step_state.hpp"

#include <algorithm>

namespace tnt {

StepState::StepState(const Plan& plan) : plan_(plan), slots_(plan.tensors().size()) {
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const std::vector<std::size_t>& tensors = plan.buckets()[b].tensors;
    buckets_.emplace_back().ready.resize(tensors.size());
    for (std::size_t position = 0; position < tensors.size(); ++position) slots_[tensors[position]] = {b, position};
  }
}

StepState::Slot StepState::slot(std::size_t tensor) const {
  if (tensor >= slots_.size()) fail(TNT_INVALID_ARGUMENT, "tensor {} is not in the plan of {} tensors", tensor, slots_.size());
  return slots_[tensor];
}

bool StepState::in_step(std::size_t bucket) const noexcept {
  return stage(bucket) == Stage::collecting || stage(bucket) == Stage::full;
}

bool StepState::begins(const Bucket& bucket) const noexcept {
  return bucket.stage == Stage::idle || (bucket.stage == Stage::done && bucket.waited_for);
}

void StepState::check_not_ready(Slot slot) const {
  const Bucket& bucket = buckets_[slot.bucket];
  if (begins(bucket) || !bucket.ready[slot.position]) return;
  fail(TNT_INVALID_ARGUMENT,
       "the gradient of '{}' was marked ready twice in one step (a bucket's step ends when it has been waited for)",
       plan_.tensors()[plan_.buckets()[slot.bucket].tensors[slot.position]].name);
}

bool StepState::mark_ready(Slot slot) {
  Bucket& bucket = buckets_[slot.bucket];
  if (begins(bucket)) {
    bucket.stage = Stage::collecting;
    bucket.waited_for = bucket.finished = false;
    bucket.n_ready = 0;
    std::fill(bucket.ready.begin(), bucket.ready.end(), false);
  }
  bucket.ready[slot.position] = true;
  if (++bucket.n_ready < bucket.ready.size()) return false;
  bucket.stage = Stage::full;
  return true;
}

void StepState::done(std::size_t bucket) {
  buckets_[bucket].stage = Stage::done;
  ++buckets_[bucket].steps;
}

// Only a bucket that is done counts: if another thread waited too, it may have begun the next step.
void StepState::waited_for(std::size_t bucket) {
  if (buckets_[bucket].stage == Stage::done) buckets_[bucket].waited_for = true;
}

void StepState::finished(std::size_t bucket) {
  if (buckets_[bucket].stage == Stage::done) buckets_[bucket].finished = true;
}

void StepState::check_begun(std::size_t bucket) const {
  if (bucket >= buckets_.size()) {
    fail(TNT_INVALID_ARGUMENT, "bucket {} is not in the plan of {} buckets", bucket, buckets_.size());
  }
  if (stage(bucket) != Stage::idle) return;
  fail(TNT_INVALID_ARGUMENT, "waiting for bucket {}, of which no gradient was marked ready ('{}' and others)", bucket,
       missing_tensor(bucket));
}

void StepState::check_can_finish() const {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (!buckets_[bucket].finished && stage(bucket) != Stage::collecting) continue;
    fail(TNT_INVALID_ARGUMENT, "the step cannot end: the gradient of '{}' was not marked ready", missing_tensor(bucket));
  }
}

void StepState::check_between_steps(std::string_view what, const std::vector<std::string>& names) const {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (in_step(bucket)) fail(TNT_INVALID_ARGUMENT, "{} while {} is in a step: wait for it first", what, names[bucket]);
  }
}

std::string StepState::missing_tensor(std::size_t index) const {
  const Bucket& bucket = buckets_[index];
  for (std::size_t position = 0; position < bucket.ready.size(); ++position) {
    if (bucket.stage == Stage::idle || bucket.finished || !bucket.ready[position]) {
      return plan_.tensors()[plan_.buckets()[index].tensors[position]].name;
    }
  }
  return "";
}

}  // namespace tnt
