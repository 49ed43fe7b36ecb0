#include "reducer/reducer.hpp"

#include <algorithm>
#include <chrono>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"

namespace tnt {
namespace {

// As many bytes are reduced in the time that waking a thread takes.
constexpr std::size_t inline_bytes = std::size_t{64} * 1024;

// A caller waits for the end of a step immediately. It finds these last, small buckets due and reduces them sooner than the
// thread would wake.
std::size_t first_inline_bucket(const Plan& plan) {
  std::size_t bucket = plan.buckets().size();
  for (std::size_t bytes = 0; bucket > 0; --bucket) {
    bytes += plan.buckets()[bucket - 1].bytes();
    if (bytes > inline_bytes) break;
  }
  return bucket;
}

// Sums the phases of a bucket, and adds them to the timeline if there is one.
class BucketObserver final : public PhaseObserver {
 public:
  BucketObserver(Trace* trace, const std::string& track, std::size_t bucket) : trace_(trace), track_(track), bucket_(bucket) {}
  void phase(Phase phase, std::int64_t begin_ns, std::int64_t end_ns) override {
    const auto index = static_cast<std::size_t>(phase);
    if (index < sums_.size()) sums_[index] += end_ns - begin_ns;
    if (trace_ == nullptr || !trace_->enabled()) return;
    trace_->add({.track = track_,
                 .name = fmt::format("{} {}", phase_names[index], bucket_),
                 .begin_ns = begin_ns,
                 .end_ns = end_ns,
                 .bucket = static_cast<std::int64_t>(bucket_)});
  }
  [[nodiscard]] const std::array<std::int64_t, 4>& sums() const noexcept { return sums_; }

 private:
  Trace* trace_;
  const std::string& track_;
  std::size_t bucket_;
  std::array<std::int64_t, 4> sums_{};
};

}  // namespace

Reducer::Reducer(std::unique_ptr<Communicator> comm, Plan plan, ReducerOptions options, std::shared_ptr<ProgressEngine> engine,
                 Trace* trace)
    : comm_(std::move(comm)),
      plan_(std::move(plan)),
      options_(std::move(options)),
      trace_(trace),
      overlap_(options_.overlap),
      first_inline_(first_inline_bucket(plan_)),
      steps_(plan_),
      buckets_(plan_.buckets().size()),
      engine_(std::move(engine)) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].views.resize(plan_.buckets()[b].tensors.size());
    for (const std::size_t tensor : plan_.buckets()[b].tensors) {
      if (const auto owner = plan_.tensors()[tensor].owner) buckets_[b].owners.push_back(*owner);
    }
    descriptions_.push_back(plan_.describe(b));
    details_.push_back(fmt::format("{} {}", options_.name, descriptions_.back()));
  }
  engine_->add(*this);
}

Reducer::~Reducer() {
  bool is_between_steps = false;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    is_between_steps = !error_ && next_ == 0;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) is_between_steps &= !steps_.in_step(bucket);
  }
  if (!is_between_steps) comm_->cancel();
  engine_->remove(*this);
  if (is_between_steps && options_.recycle) options_.recycle(std::move(comm_));
}

void Reducer::throw_if_failed() const {
  if (error_) throw Error(*error_);
}

void Reducer::check() {
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  if (const auto error = comm_->async_error()) throw Error(*error);
}

void Reducer::check_stream(StreamHandle stream) const {
  if (stream == nullptr) return;
  fail(TNT_INVALID_ARGUMENT,
       "stream is not NULL: the gradients of {} lie in host memory (tnt_reducer_options_t.device says so)", options_.name);
}

void* Reducer::gradient_buffer(std::size_t tensor) {
  (void)steps_.slot(tensor);
  fail(TNT_UNSUPPORTED, "{}: a bucket in host memory is never held whole, so no gradient can lie in it", options_.name);
}

void Reducer::set_hook(BucketHook hook) {
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  steps_.check_between_steps("a hook cannot be set", details_);
  hook_ = std::move(hook);
  std::size_t largest = 0;
  for (const Bucket& bucket : plan_.buckets()) largest = std::max(largest, bucket.bytes());
  packed_ = std::vector<std::byte>(hook_ ? largest : 0);
}

void Reducer::ready(std::size_t tensor, const TensorView& view, StreamHandle stream) {
  check_stream(stream);
  const StepState::Slot slot = steps_.slot(tensor);
  const TensorSpec& spec = plan_.tensors()[tensor];
  if (view.in == nullptr && spec.count > 0 && view.scale != 0.0) {
    fail(TNT_INVALID_ARGUMENT, "the gradient of '{}' is NULL", spec.name);
  }
  const std::size_t bucket = slot.bucket;
  const std::scoped_lock lock(mutex_);
  throw_if_failed();
  steps_.check_not_ready(slot);
  BucketState& state = buckets_[bucket];
  state.views[slot.position] = view;
  state.views[slot.position].count = spec.count;
  state.views[slot.position].dtype = spec.dtype;
  if (!spec.is_needed_by(comm_->rank())) state.views[slot.position].out = nullptr;
  if (!steps_.mark_ready(slot)) return;
  state.full_ns = last_full_ns_ = now_ns();
  if (trace_ != nullptr && trace_->enabled()) {
    trace_->add({.track = options_.name,
                 .name = fmt::format("ready {}", bucket),
                 .begin_ns = last_full_ns_,
                 .end_ns = last_full_ns_,
                 .bucket = static_cast<std::int64_t>(bucket),
                 .bytes = static_cast<std::int64_t>(plan_.buckets()[bucket].bytes())});
  }
  if (waiting_ > 0) changed_.notify_all();
  if (bucket == next_) announce_next();
}

void Reducer::wait_bucket(std::size_t bucket, StreamHandle stream) {
  check_stream(stream);
  std::unique_lock lock(mutex_);
  throw_if_failed();
  steps_.check_begun(bucket);
  wait_until_done(lock, bucket);
}

void Reducer::wait_until_done(std::unique_lock<std::mutex>& lock, std::size_t bucket) {
  const std::uint64_t wanted = steps_.steps(bucket) + (steps_.stage(bucket) == Stage::done ? 0 : 1);
  const auto is_done = [&] { return steps_.steps(bucket) >= wanted; };
  const auto limit =
      std::min<std::chrono::duration<double>>(std::chrono::duration<double>(options_.timeout), ProgressEngine::max_delay);
  double asleep = 0;
  // while the bucket collects gradients, this wait has its own deadline; afterwards the collective has one
  while (!error_) {
    // without the thread, the caller reduces all due buckets; otherwise ranks would wait for one another in each bucket
    if (next_is_due() && (!is_done() || !overlap_.threaded())) {
      reduce_next(lock);
      announce_next();
      asleep = 0;
      continue;
    }
    if (is_done()) break;
    ++waiting_;
    const bool changed = changed_.wait_for(lock, limit, [&] { return is_done() || error_ || next_is_due(); });
    --waiting_;
    asleep = changed ? 0 : asleep + limit.count();
    if (changed) continue;
    engine_->look_for_overdue();
    if (steps_.stage(bucket) == Stage::collecting && asleep >= options_.timeout) {
      fail(TNT_TIMEOUT, "rank {}: bucket {} of {} waited {} s for the gradient of '{}', which this rank did not mark ready",
           comm_->rank(), bucket, options_.name, options_.timeout, steps_.missing_tensor(bucket));
    }
  }
  throw_if_failed();
  steps_.waited_for(bucket);
}

void Reducer::finish(StreamHandle stream) {
  check_stream(stream);
  std::unique_lock lock(mutex_);
  throw_if_failed();
  steps_.check_can_finish();
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    wait_until_done(lock, bucket);
    steps_.finished(bucket);
  }
}

bool Reducer::next_is_due() const { return !reducing_ && steps_.stage(next_) == Stage::full; }

bool Reducer::next_is_for_thread() const { return overlap_.threaded() && next_ < first_inline_; }

bool Reducer::is_overdue() const noexcept {
  const std::int64_t since = due_ns_.load();
  return since != 0 && now_ns() - since >= ProgressEngine::max_delay.count();
}

// After a change of the next bucket: wakes a thread if it is due for one, or notes since when it is left to callers.
void Reducer::announce_next() {
  if (error_ || stopping_ || !next_is_due()) return;
  if (next_is_for_thread()) {
    engine_->wake(*this);
  } else {
    due_ns_ = buckets_[next_].full_ns;
  }
}

void Reducer::serve() {
  std::unique_lock lock(mutex_);
  while (!error_ && !stopping_ && next_is_due() && (next_is_for_thread() || is_overdue())) {
    reduce_next(lock);
    changed_.notify_all();
  }
  if (!next_is_for_thread()) announce_next();
}

// Called by a thread of the engine and by a waiting caller, because waking a thread costs more than reducing a small bucket.
// The lock is released during the reduction.
void Reducer::reduce_next(std::unique_lock<std::mutex>& lock) {
  const std::size_t bucket = next_;
  const WaitHint wait_hint = overlap_.threaded() ? WaitHint::computing : WaitHint::idle;
  reducing_ = true;
  due_ns_ = 0;
  lock.unlock();
  const std::int64_t begin = now_ns();
  BucketObserver observer(trace_, options_.name, bucket);
  std::optional<Error> failed;
  try {
    reduce_bucket(bucket, wait_hint, observer);
    if (bucket + 1 == buckets_.size()) end_step();
  } catch (const std::exception& error) {
    failed = tell_others(bucket, error);
  }
  lock.lock();
  reducing_ = false;
  next_ = (next_ + 1) % buckets_.size();
  if (failed) {
    error_ = std::move(failed);
  } else {
    count_step(bucket, begin, observer.sums());
  }
  // a caller that goes on with the next bucket wakes the other threads at the end: they would take its core
  const bool goes_on = !error_ && !overlap_.threaded() && next_is_due();
  if (!goes_on) changed_.notify_all();
}

void Reducer::end_step() {
  if (first_inline_ == 0) return;  // nothing to choose
  OverlapTuner::Seconds seconds;
  {
    const std::scoped_lock lock(mutex_);
    if (!overlap_.step_ended(now_ns())) return;
    seconds = overlap_.seconds();
  }
  const std::string detail = fmt::format("choosing who reduces {}", options_.name);
  const Call slowest{.kind = Call::all_reduce, .dtype = TNT_FLOAT64, .op = TNT_MAX, .count = seconds.size()};
  comm_->run({slowest, seconds.data(), seconds.data()}, {.timeout = options_.timeout, .detail = detail});
  const std::scoped_lock lock(mutex_);
  overlap_.set_agreed(seconds);
  if (options_.overlap != Overlap::automatic) return;
  log(LogLevel::info, "{}: {} (steps of {:.2f} ms with a thread that reduces meanwhile, {:.2f} without)", options_.name,
      overlap_.threaded() ? "reduced while the step goes on" : "reduced when the step waits for it", seconds[1] * 1e3,
      seconds[0] * 1e3);
}

// The views of a full bucket do not change until it is done, so no lock is held during the reduction.
void Reducer::reduce_bucket(std::size_t bucket, WaitHint wait_hint, PhaseObserver& observer) {
  const FusedBuffer fused(buckets_[bucket].views, plan_.buckets()[bucket].dtype);
  const CallContext call{
      .timeout = options_.timeout, .detail = details_[bucket], .observer = &observer, .wait_hint = wait_hint};
  hook_ ? reduce_with_hook(bucket, fused, call) : sum(bucket, fused, call);
}

void Reducer::sum(std::size_t bucket, const FusedBuffer& fused, const CallContext& call) {
  comm_->run(fused_all_reduce(fused, TNT_SUM, buckets_[bucket].owners), call);
}

void Reducer::reduce_with_hook(std::size_t bucket, const FusedBuffer& fused, const CallContext& call) {
  std::vector<TensorView> packed;
  std::vector<std::size_t> offsets;
  std::size_t offset = 0;
  for (const TensorView& view : fused.views()) {
    std::byte* const place = packed_.data() + offset * dtype_size(fused.dtype());
    packed.push_back({.in = place, .out = view.out == nullptr ? nullptr : place, .count = view.count});
    offsets.push_back(offset);
    offset += view.count;
  }
  {
    Phases phases(call);
    fused.pack(0, fused.count(), packed_.data());
    phases.end(Phase::pack);
    call_hook({.bucket = bucket, .data = packed_.data(), .count = fused.count(), .offsets = offsets});
    phases.end(Phase::hook);
  }
  sum(bucket, FusedBuffer(packed, fused.dtype()), call);
  Phases phases(call);
  fused.unpack(0, fused.count(), packed_.data());
  phases.end(Phase::unpack);
}

// The error of this rank after a failure. The other ranks wait for this bucket, so they get it as well, unless they know of an
// error already: of another rank, or of the collective itself.
Error Reducer::tell_others(std::size_t bucket, const std::exception& failure) {
  if (const auto known = comm_->async_error()) return *known;
  {
    const std::scoped_lock lock(mutex_);
    if (stopping_) return {TNT_ABORTED, failure.what()};  // because this rank has cancelled the collective
  }
  const auto* const own = dynamic_cast<const Error*>(&failure);  // says the rank and the call itself
  const Error error = own != nullptr
                          ? Error(own->status(), own->what())
                          : Error(TNT_ABORTED, fmt::format("rank {}: {}: {}", comm_->rank(), details_[bucket], failure.what()));
  comm_->abort(error.status(), error.what());
  return comm_->async_error().value_or(error);  // another rank may have aborted first
}

// A failure aborts the job, because the other ranks wait for this bucket.
void Reducer::call_hook(const PackedBucket& packed) {
  const auto failure = failure_of_hook(hook_, packed);
  if (!failure) return;
  const std::string message =
      fmt::format("rank {}: {}: the bucket hook failed: {}", comm_->rank(), details_[packed.bucket], *failure);
  comm_->abort(TNT_ABORTED, message);
  throw Error(comm_->async_error().value_or(Error(TNT_ABORTED, message)));  // another rank may have aborted first
}

void Reducer::count_step(std::size_t bucket, std::int64_t begin_ns, const std::array<std::int64_t, 4>& phase_ns) {
  const std::int64_t end_ns = now_ns();
  stats_.bytes += plan_.buckets()[bucket].bytes();
  stats_.busy_ns += end_ns - begin_ns;
  for (std::size_t i = 0; i < phase_ns.size(); ++i) stats_.phase_ns[i] += phase_ns[i];
  if (bucket + 1 == buckets_.size()) {
    ++stats_.steps;
    // the bucket that becomes full last is nearly always the last in order; another may already be full for the next step
    stats_.exposed_ns += std::max<std::int64_t>(0, end_ns - last_full_ns_);
  }
  steps_.done(bucket);
}

std::uint64_t Reducer::tensor_steps(std::size_t tensor) const {
  const std::scoped_lock lock(mutex_);
  return steps_.steps(steps_.slot(tensor).bucket);
}

ReducerStats Reducer::stats() const {
  const std::scoped_lock lock(mutex_);
  return stats_;
}

}  // namespace tnt
