#include "reducer/plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "common/error.hpp"

namespace tnt {
namespace {

constexpr std::size_t end_share = 4;         // the first and the last bucket have this fraction of the threshold ...
constexpr std::size_t end_buckets_from = 3;  // ... if the tensors have at least this multiple of the threshold

std::string human_bytes(std::size_t bytes) {
  constexpr std::size_t kib = 1024;
  constexpr std::size_t mib = kib * 1024;
  if (bytes < kib) return fmt::format("{} B", bytes);
  const auto [unit, name] = bytes < mib ? std::pair{kib, "KiB"} : std::pair{mib, "MiB"};
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(unit), name);
}

tnt_dtype_t on_wire(tnt_dtype_t own, std::optional<tnt_dtype_t> wire) {
  return own == TNT_FLOAT32 || own == TNT_FLOAT64 ? wire.value_or(own) : own;
}

std::vector<std::size_t> checked_gradient_order(std::vector<std::size_t> gradient_order, std::size_t n_tensors) {
  if (gradient_order.empty()) {
    gradient_order.resize(n_tensors);
    std::iota(gradient_order.rbegin(), gradient_order.rend(), std::size_t{0});
  }
  std::vector<bool> named(n_tensors);
  for (const std::size_t tensor : gradient_order) {
    if (tensor < n_tensors) named[tensor] = true;
  }
  if (gradient_order.size() != n_tensors || std::find(named.begin(), named.end(), false) != named.end()) {
    fail(TNT_INVALID_ARGUMENT, "gradient_order does not name each of the {} tensors once", n_tensors);
  }
  return gradient_order;
}

}  // namespace

Plan::Plan(std::vector<TensorSpec> tensors, std::size_t fusion_threshold, std::optional<tnt_dtype_t> wire,
           std::vector<std::size_t> gradient_order)
    : tensors_(std::move(tensors)),
      gradient_order_(checked_gradient_order(std::move(gradient_order), tensors_.size())),
      fusion_threshold_(fusion_threshold),
      wire_(wire) {
  std::size_t bytes = 0;
  for (const TensorSpec& spec : tensors_) bytes += spec.count * dtype_size(on_wire(spec.dtype, wire_));
  // with two or three buckets, two more would cost more than they hide
  const std::size_t end_limit = bytes / end_buckets_from < fusion_threshold ? fusion_threshold : fusion_threshold / end_share;
  std::map<tnt_dtype_t, Bucket> open;
  const auto close = [&](Bucket& bucket) {
    buckets_.push_back(std::move(bucket));
    bucket = {};
  };
  for (const std::size_t tensor : gradient_order_) {
    const TensorSpec& spec = tensors_[tensor];
    const tnt_dtype_t dtype = on_wire(spec.dtype, wire_);
    Bucket& bucket = open[dtype];
    bucket.dtype = dtype;
    bucket.tensors.push_back(tensor);
    bucket.count += spec.count;
    const std::size_t limit = buckets_.empty() ? end_limit : fusion_threshold;
    if (bucket.bytes() >= limit) close(bucket);
  }
  for (auto& [dtype, bucket] : open) {
    if (!bucket.tensors.empty()) close(bucket);
  }
  if (buckets_.size() > 1) split_last(end_limit);
  // each owner's tensors lie together, as the segments of a reduce_scatter
  for (Bucket& bucket : buckets_) {
    std::stable_sort(bucket.tensors.begin(), bucket.tensors.end(),
                     [&](std::size_t a, std::size_t b) { return tensors_[a].owner < tensors_[b].owner; });
  }
}

void Plan::split_last(std::size_t limit) {
  Bucket& last = buckets_.back();
  Bucket end;
  end.dtype = last.dtype;
  std::size_t begin = last.tensors.size();
  while (begin > 0 && (end.count == 0 || end.bytes() < limit)) end.count += tensors_[last.tensors[--begin]].count;
  if (begin == 0 || last.bytes() <= limit) return;
  end.tensors.assign(last.tensors.begin() + static_cast<std::ptrdiff_t>(begin), last.tensors.end());
  last.tensors.resize(begin);
  last.count -= end.count;
  buckets_.push_back(std::move(end));
}

std::size_t Plan::bytes() const noexcept {
  return std::accumulate(buckets_.begin(), buckets_.end(), std::size_t{0},
                         [](std::size_t sum, const Bucket& bucket) { return sum + bucket.bytes(); });
}

std::string Plan::describe(std::size_t bucket) const {
  const Bucket& of = buckets_[bucket];
  return fmt::format("bucket {}: {}{}, {} {}, {}{}", bucket, human_bytes(of.bytes()),
                     wire_ == of.dtype ? fmt::format(" of {}", dtype_name(of.dtype)) : "", of.tensors.size(),
                     of.tensors.size() == 1 ? "tensor" : "tensors", tensors_[of.tensors.front()].name,
                     of.tensors.size() == 1 ? "" : " …");
}

}  // namespace tnt
