#include "comm/network/communicator.hpp"

#include <numeric>
#include <set>
#include <string_view>
#include <utility>

namespace tnt {
namespace {

std::vector<int> all_ranks(int ranks) {
  std::vector<int> result(static_cast<std::size_t>(ranks));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

}  // namespace

NetworkCommunicator::NetworkCommunicator(const std::shared_ptr<NetworkWorld>& world)
    : NetworkCommunicator(world, 0, all_ranks(world->ranks()), static_cast<std::size_t>(world->rank())) {
  native_ = world->network().native_collectives();
}

NetworkCommunicator::NetworkCommunicator(std::shared_ptr<NetworkWorld> world, std::uint64_t context, std::vector<int> members,
                                         std::size_t self)
    : group_{.world = std::move(world), .context = context, .members = std::move(members), .self = self, .involved = {}},
      reduction_order_(group_.size()),
      handshake_(group_),
      point_to_point_(group_, point_to_point_tag),
      group_channel_(group_, group_tag),
      group_ids_(*this, group_channel_, group_.members) {
  std::iota(reduction_order_.begin(), reduction_order_.end(), std::size_t{0});
  std::set<int> nodes;
  for (std::size_t member = 0; member < group_.size(); ++member) {
    nodes.insert(group_.world->node(group_.members[member]));
    if (group_.world->node(group_.members[member]) != group_.world->node(group_.world->rank())) continue;
    if (member < self) ++local_rank_;
    ++local_size_;
  }
  const auto lane = [&](bool messages) {
    return open_lane(group_.world->recorder(), context, group_.members, self, transport(), messages);
  };
  group_.calls = lane(false);
  group_.messages = lane(true);
  group_.nodes = nodes.size();
  group_.one_node = group_.nodes == 1;
  group_.backoff = backoff_policy_for(std::vector<int>(static_cast<std::size_t>(local_size_), 0)).beside_computing();
  group_.test_yields = group_.world->network().test_yields();
}

void NetworkCommunicator::run(const Collective& call, const CallContext& context) {
  const auto peer = static_cast<std::size_t>(call.root);
  switch (call.kind) {
    case Call::all_reduce: return call.owners.empty() ? reduce_tensors(call, context) : reduce_to_owners(call, context);
    case Call::reduce: return reduce_tensors(call, context);
    case Call::reduce_scatter:
    case Call::reduce_scatter_v: return reduce_scatter(call, context);
    case Call::all_gather:
    case Call::all_gather_v: return all_gather(call, context);
    case Call::broadcast: return broadcast(call, context);
    case Call::all_to_all:
    case Call::gather:
    case Call::scatter: return exchange_blocks(call, context);
    case Call::all_to_all_v: return exchange_counts(call, context);
    case Call::send: return point_to_point_.send(call.in, call.count, call.dtype, peer, context);
    case Call::recv: return point_to_point_.recv(call.out, call.count, call.dtype, peer, context);
    case Call::barrier: break;
  }
  handshake_.gather(call, context, 0, [](std::byte*) {});
  handshake_.end();
}

std::vector<std::string> NetworkCommunicator::hosts() const {
  if (transport() != std::string_view("tcp")) return {};
  std::vector<std::string> all;
  for (const int member : group_.members) all.push_back(group_.world->network().host_of(member));
  return all;
}

std::unique_ptr<NetworkCommunicator> NetworkCommunicator::subgroup(std::vector<int> members, int index) const {
  const std::size_t self = index_of(group_.world->rank(), members);
  auto part = std::unique_ptr<NetworkCommunicator>(
      new NetworkCommunicator(group_.world, group_.context + 1 + static_cast<std::uint64_t>(index), std::move(members), self));
  part->group_.involved = group_.members;
  part->doubling_ = doubling_;
  return part;
}

std::unique_ptr<Communicator> NetworkCommunicator::split(int color, int key, const CallContext& context) {
  return split_network(color, key, context);
}

// Every rank learns all colours, keys and one proposed context of each rank. A group takes the context of its first member.
std::unique_ptr<NetworkCommunicator> NetworkCommunicator::split_network(int color, int key, const CallContext& context) {
  const SplitKey own{.color = color, .key = key, .id = group_.world->allocate_context()};
  std::vector<SplitKey> keys(group_.size());
  run({{.kind = Call::all_gather, .count = sizeof(own)}, &own, keys.data()}, context);
  if (color < 0) return nullptr;
  const std::vector<int> members = members_of_color(keys, color);
  auto part = make_part(members, keys[static_cast<std::size_t>(members.front())].id);
  if (native_ && part->group_.members == group_.members) {
    RequestBatch batch(group_);
    batch.add(native_->duplicate(part->native_), false);
    batch.wait(context, std::nullopt, [this] { return fmt::format("rank {} in split", group_.members[group_.self]); });
    part->native_choice_ = native_choice_;
  }
  return part;
}

std::unique_ptr<Communicator> NetworkCommunicator::duplicate_with_flat_sums(const CallContext& context) {
  auto part = split_network(0, 0, context);
  part->native_choice_ = {};
  return part;
}

std::unique_ptr<NetworkCommunicator> NetworkCommunicator::create_network_group(std::span<const int> members, int tag,
                                                                               const CallContext& context) {
  const auto draw = [&] { return group_.world->allocate_context(); };
  return make_part(members, group_ids_.agree(members, tag, draw, context));
}

std::unique_ptr<NetworkCommunicator> NetworkCommunicator::make_part(std::span<const int> members, std::uint64_t id) const {
  auto part = std::unique_ptr<NetworkCommunicator>(
      new NetworkCommunicator(group_.world, id, ranks_in_job(members, group_.members), index_of(rank(), members)));
  part->doubling_ = doubling_;
  return part;
}

}  // namespace tnt
