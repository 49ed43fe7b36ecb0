// Sums that one rank each needs: inside nodes, then between them.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "comm/blocks.hpp"
#include "comm/communicator.hpp"
#include "comm/hierarchical/communicator.hpp"
#include "comm/network/messages/chunks.hpp"
#include "kernels/cpu/reduce.hpp"

namespace tnt {
namespace {

constexpr std::size_t max_chunk_bytes = std::size_t{4} * 1024 * 1024;  // of all ranks' blocks together
constexpr std::size_t min_chunk_bytes = std::size_t{128} * 1024;

// Elements of each block in a chunk.
std::size_t elements_per_chunk(const Blocks& blocks, std::size_t size) {
  const std::size_t bytes = blocks.total() * size;
  const std::size_t chunks = divided_up(bytes, std::clamp(bytes / 4, min_chunk_bytes, max_chunk_bytes));
  const std::size_t line = cache_line_bytes / size;
  return std::max(line, divided_up(divided_up(blocks.largest(), std::max<std::size_t>(1, chunks)), line) * line);
}

// A chunk that is under way.
struct Chunk {
  std::size_t begin = 0;  // of what this rank owns
  std::size_t count = 0;
  StagingBuffer node_sums;
  StagingBuffer result;
  std::vector<TensorView> views;  // of node_sums: the part of each node
  std::vector<int> owners;
  std::shared_ptr<Work> work;  // nullptr if no node owns anything
};

}  // namespace

// A part of every rank's block. start() reduces it inside the node, so that this rank has what the ranks of its position on all
// nodes own, and hands that to a cross-node thread. finish() unpacks what this rank owns.
class HierarchicalCommunicator::OwnerReduce {
 public:
  // dtype: the type that a node's memory holds. wire: the type in which blocks travel between nodes.
  OwnerReduce(HierarchicalCommunicator& comm, const FusedBuffer& fused, const Blocks& blocks, tnt_dtype_t dtype,
              tnt_dtype_t wire, tnt_op_t op, const CallContext& context)
      : comm_(comm),
        fused_(fused),
        blocks_(blocks),
        dtype_(dtype),
        wire_(wire),
        op_(op == TNT_AVG ? TNT_SUM : op),
        is_mean_(op == TNT_AVG),
        context_{.timeout = context.timeout, .detail = context.detail},
        phases_(context),
        size_(dtype_size(dtype)),
        nodes_(comm.ranks_by_place_.size() / comm.carriers_),
        self_(static_cast<std::size_t>(comm.rank())),
        per_chunk_(elements_per_chunk(blocks, size_)) {}

  // Waits for the cross-node threads before their memory is freed; the abort makes their operations fail soon.
  ~OwnerReduce() {
    for (auto& chunk : chunks_) {
      if (!chunk || !chunk->work) continue;
      comm_.abort(TNT_ABORTED, fmt::format("rank {} could not complete a reduction to owners", comm_.global_->world().rank()));
      wait_quietly(chunk->work);
    }
  }
  OwnerReduce(const OwnerReduce&) = delete;
  OwnerReduce& operator=(const OwnerReduce&) = delete;

  [[nodiscard]] std::size_t chunks() const { return divided_up(blocks_.largest(), per_chunk_); }

  void start(std::size_t index) {
    const std::size_t first = index * per_chunk_;
    std::vector<std::size_t> counts(comm_.carriers_);  // of each position in a node
    for (std::size_t i = 0; i < comm_.ranks_by_place_.size(); ++i) counts[i / nodes_] += part(i, first);
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    const StagingBuffer data = comm_.staging_.acquire(total * size_);
    std::byte* to = data.get();
    for (std::size_t i = 0; i < comm_.ranks_by_place_.size(); ++i) {
      pack_as(dtype_, fused_, blocks_.begin(comm_.ranks_by_place_[i]) + first, part(i, first), to, comm_.staging_);
      to += part(i, first) * size_;
    }
    phases_.end(Phase::pack);
    const auto place = static_cast<std::size_t>(comm_.local_->rank());
    Chunk& chunk = chunks_[index % chunks_in_flight].emplace();
    chunk.begin = blocks_.begin(self_) + first;
    chunk.count = blocks_.part(self_, first, per_chunk_);
    chunk.node_sums = comm_.staging_.acquire(counts[place] * size_);
    comm_.local_->run({uneven_call(Call::reduce_scatter_v, counts, dtype_, op_), data.get(), chunk.node_sums.get(), counts},
                      context_);
    phases_.end(Phase::reduce);
    if (counts[place] > 0) start_between_nodes(chunk, comm_.cross_[index % comm_.cross_.size()], place * nodes_, first);
  }

  void advance(std::size_t /*index*/) {}

  void finish(std::size_t index) {
    auto& chunk = chunks_[index % chunks_in_flight];
    if (chunk->work) (void)chunk->work->wait(-1);
    phases_.end(Phase::wait);
    if (is_mean_ && chunk->count > 0) {
      divide(chunk->result.get(), chunk->count, dtype_, static_cast<std::size_t>(comm_.size()));
    }
    unpack_from(dtype_, fused_, chunk->begin, chunk->count, chunk->result.get(), comm_.staging_);
    phases_.end(Phase::unpack);
    chunk.reset();
  }

 private:
  // Elements of the chunk that the i-th of ranks_by_place_ owns.
  [[nodiscard]] std::size_t part(std::size_t i, std::size_t first) const {
    return blocks_.part(comm_.ranks_by_place_[i], first, per_chunk_);
  }

  // from: the index in ranks_by_place_ of the first rank with this rank's position.
  void start_between_nodes(Chunk& chunk, CrossNode& cross, std::size_t from, std::size_t first) {
    chunk.result = comm_.staging_.acquire(chunk.count * size_);
    std::byte* next = chunk.node_sums.get();
    for (std::size_t node = 0; node < nodes_; ++node) {
      const bool is_own = comm_.ranks_by_place_[from + node] == self_;
      const std::size_t count = part(from + node, first);
      chunk.views.push_back({.in = next, .out = is_own ? chunk.result.get() : nullptr, .count = count, .dtype = dtype_});
      chunk.owners.push_back(static_cast<int>(node));
      next += count * size_;
    }
    chunk.work = cross.executor.start([this, &cross, &chunk] {
      cross.comm->run(fused_all_reduce(FusedBuffer(chunk.views, wire_), op_, chunk.owners), context_);
    });
  }

  HierarchicalCommunicator& comm_;
  const FusedBuffer& fused_;
  const Blocks& blocks_;
  tnt_dtype_t dtype_;
  tnt_dtype_t wire_;
  tnt_op_t op_;
  bool is_mean_;
  CallContext context_;
  Phases phases_;
  std::size_t size_;
  std::size_t nodes_;
  std::size_t self_;
  std::size_t per_chunk_;
  std::array<std::optional<Chunk>, chunks_in_flight> chunks_;
};

void HierarchicalCommunicator::reduce_to_owners(const FusedBuffer& fused, std::span<const int> owners, tnt_op_t op,
                                                const CallContext& context) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(size()));
  for (std::size_t i = 0; i < owners.size(); ++i) counts[static_cast<std::size_t>(owners[i])] += fused.views()[i].count;
  const Blocks blocks(counts);
  const Call call = uneven_call(Call::reduce_scatter_v, counts, fused.dtype(), op);
  by_nodes(call, fused, context, [&](const FusedBuffer& inside, tnt_dtype_t dtype, tnt_dtype_t wire, const CallContext& part) {
    OwnerReduce stages(*this, inside, blocks, dtype, wire, op, part);
    run_pipeline(stages, stages.chunks());
  });
}

}  // namespace tnt
