#include "comm/hierarchical/hierarchical_communicator.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "comm/network/chunks.hpp"
#include "comm/network/pipeline.hpp"
#include "comm/phases.hpp"

namespace tnt {
namespace {

class NetworkAbortLink final : public RemoteAbortLink {
 public:
  explicit NetworkAbortLink(std::shared_ptr<NetworkWorld> world) : world_(std::move(world)) {}
  void abort(tnt_status_t status, const std::string& message) noexcept override { world_->abort(status, message); }
  [[nodiscard]] std::optional<Error> async_error() noexcept override { return world_->async_error(); }

 private:
  std::shared_ptr<NetworkWorld> world_;
};

// The maximum slice of a chunk. A cross-node communicator is idle during its first and last messages; with this size their cost
// is small.
constexpr std::size_t max_slice_bytes = std::size_t{2} * 1024 * 1024;

// A tensor that is wider than the 16-bit wire type goes through a node's memory in float32, so only the sum of a node is
// rounded. Other 16-bit data and means would be rounded twice.
bool rounds_twice(const FusedBuffer& fused, tnt_op_t op) {
  return op == TNT_AVG || ((fused.dtype() == TNT_FLOAT16 || fused.dtype() == TNT_BFLOAT16) && !fused.narrows());
}

// Whether each node has 2^k consecutive ranks. The sum of a node is then a subtree of the tree over all ranks.
bool are_subtrees(const NetworkCommunicator& all, std::size_t local_size) {
  if (!std::has_single_bit(local_size)) return false;
  const auto node = [&](std::size_t rank) { return all.world().node(all.members()[rank]); };
  for (std::size_t rank = 0; rank < all.members().size(); ++rank) {
    if (node(rank) != node(rank / local_size * local_size)) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<RemoteAbortLink> remote_abort_link(std::shared_ptr<NetworkWorld> world) {
  return std::make_shared<NetworkAbortLink>(std::move(world));
}

std::unique_ptr<Communicator> HierarchicalCommunicator::make(std::unique_ptr<NetworkCommunicator> all,
                                                             std::unique_ptr<Communicator> local) {
  if (local->size() == all->size()) return local;
  std::map<int, int> seen;  // number of members of each node so far
  std::vector<int> peers;   // the ranks with this rank's position on their node
  for (const int member : all->members()) {
    if (seen[all->world().node(member)]++ == local->rank()) peers.push_back(member);
  }
  const bool equal = std::all_of(seen.begin(), seen.end(), [&](const auto& node) { return node.second == local->size(); });
  if (!equal)
    log(LogLevel::info, "nodes have different numbers of ranks: all ranks exchange data over the network (flat algorithm)");
  if (!equal || local->size() == 1) return all;
  return std::unique_ptr<Communicator>(new HierarchicalCommunicator(std::move(all), std::move(local), peers));
}

HierarchicalCommunicator::HierarchicalCommunicator(std::unique_ptr<NetworkCommunicator> all,
                                                   std::unique_ptr<Communicator> local, const std::vector<int>& peers)
    : global_(std::move(all)),
      local_(std::move(local)),
      nodes_are_subtrees_(are_subtrees(*global_, static_cast<std::size_t>(local_->size()))) {
  for (std::size_t i = 0; i < cross_.size(); ++i) cross_[i].comm = global_->subgroup(peers, static_cast<int>(i));
}

void HierarchicalCommunicator::cancel() noexcept {
  global_->cancel();
  local_->cancel();
  for (CrossNode& cross : cross_) cross.comm->cancel();
}

std::unique_ptr<Communicator> HierarchicalCommunicator::split(int color, int key, const CallContext& context) {
  auto all = global_->split_network(color, key, context);
  auto local = local_->split(color, key, context);
  if (color < 0) return nullptr;
  return make(std::move(all), std::move(local));
}

// One chunk. start() reduces it inside the node to slices and hands this rank's slice to a cross-node thread. finish() gathers
// and unpacks the slices after the cross-node reduction.
class HierarchicalCommunicator::AllReduce {
 public:
  // fused: in the type that a node's memory uses. wire: the type in which slices travel between nodes.
  AllReduce(HierarchicalCommunicator& comm, const FusedBuffer& fused, tnt_dtype_t wire, tnt_op_t op, const CallContext& context)
      : comm_(comm),
        fused_(fused),
        wire_(wire),
        op_(op),
        context_{.timeout = context.timeout, .detail = context.detail},
        phases_(context),
        size_(dtype_size(fused.dtype())),
        local_size_(static_cast<std::size_t>(comm.local_->size())) {
    const std::size_t min_slice_bytes = std::size_t{32} * 1024;
    const std::size_t slice = std::clamp(fused.count() * size_ / local_size_ / 4, min_slice_bytes, max_slice_bytes);
    per_chunk_ = slice / cache_line_bytes * cache_line_bytes / size_ * local_size_;
  }

  // Waits for the cross-node threads before their memory is freed; the abort makes their operations fail soon.
  ~AllReduce() {
    for (auto& chunk : chunks_) {
      if (!chunk) continue;
      comm_.abort(TNT_ABORTED, fmt::format("rank {} could not complete an all_reduce", comm_.global_->world().rank()));
      wait_quietly(*chunk);
    }
  }
  AllReduce(const AllReduce&) = delete;
  AllReduce& operator=(const AllReduce&) = delete;

  [[nodiscard]] std::size_t chunks() const { return chunk_count(fused_.count(), per_chunk_); }

  void start(std::size_t index) {
    const std::size_t first = index * per_chunk_;
    const std::size_t count = std::min(per_chunk_, fused_.count() - first);
    const std::size_t slice = (count + local_size_ - 1) / local_size_;
    const StagingBuffer data = comm_.staging_.acquire(slice * local_size_ * size_);
    const StagingBuffer own = comm_.staging_.acquire(slice * size_);
    fused_.pack(first, count, data.get());
    std::memset(data.get() + count * size_, 0, (slice * local_size_ - count) * size_);
    phases_.end("pack");
    comm_.local_->reduce_scatter(data.get(), own.get(), slice, fused_.dtype(), op_, context_);
    phases_.end("reduce");
    CrossNode& cross = comm_.cross_[index % comm_.cross_.size()];
    auto work = cross.executor.start([this, &cross, own, slice] {
      const TensorView view{.in = own.get(), .out = own.get(), .count = slice, .dtype = fused_.dtype()};
      cross.comm->all_reduce(FusedBuffer({&view, 1}, wire_), op_, context_);
    });
    chunks_[index % chunks_in_flight] = Chunk{first, count, slice, data, own, std::move(work)};
  }

  void advance(std::size_t /*index*/) {}

  void finish(std::size_t index) {
    auto& chunk = chunks_[index % chunks_in_flight];
    (void)chunk->work->wait(-1);
    phases_.end("wait");
    comm_.local_->all_gather(chunk->own.get(), chunk->data.get(), chunk->slice, fused_.dtype(), context_);
    fused_.unpack(chunk->first, chunk->count, chunk->data.get());
    phases_.end("unpack");
    chunk.reset();
  }

 private:
  struct Chunk {
    std::size_t first;
    std::size_t count;
    std::size_t slice;
    StagingBuffer data;
    StagingBuffer own;
    std::shared_ptr<Work> work;
  };
  static void wait_quietly(Chunk& chunk) noexcept {
    try {
      (void)chunk.work->wait(-1);
    } catch (const Error&) {  // the first error has been reported already
    }
  }

  HierarchicalCommunicator& comm_;
  const FusedBuffer& fused_;
  tnt_dtype_t wire_;
  tnt_op_t op_;
  CallContext context_;
  Phases phases_;
  std::size_t size_;
  std::size_t local_size_;
  std::size_t per_chunk_ = 0;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

// A tree sum must have the same bits on any transport, so nodes must not use another type inside than between them.
bool HierarchicalCommunicator::use_flat_algorithm(const FusedBuffer& fused, tnt_op_t op) const noexcept {
  if (fused.count() * dtype_size(fused.dtype()) <= CollectiveHandshake::max_payload || rounds_twice(fused, op)) return true;
  return op == tree_sum && (!nodes_are_subtrees_ || fused.narrows());
}

void HierarchicalCommunicator::all_reduce(const FusedBuffer& fused, tnt_op_t op, const CallContext& context) {
  if (use_flat_algorithm(fused, op)) return global_->all_reduce(fused, op, context);
  const Call call{.kind = Call::all_reduce, .dtype = fused.dtype(), .op = op, .count = fused.count()};
  global_->begin_handshake(call, context);
  global_->finish_handshake();
  const std::string detail =
      context.detail.empty() ? describe(call)
                             : fmt::format("{}, {}", describe(call), context.detail);  // each step reports its own operation
  const FusedBuffer inside(fused.views(), fused.narrows() ? TNT_FLOAT32 : fused.dtype());
  AllReduce stages(*this, inside, fused.dtype(), op,
                   {.timeout = context.timeout, .detail = detail, .observer = context.observer});
  run_pipeline(stages, stages.chunks(), [] {});
}

}  // namespace tnt
