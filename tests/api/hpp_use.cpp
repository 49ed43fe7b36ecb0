// tarantella.hpp as C++17: each of its functions on one rank, the errors, and what becomes of handles.
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "tarantella/tarantella.hpp"

namespace {

using namespace std::chrono_literals;
using tarantella::Comm;
using tarantella::Reducer;
using tarantella::View;
using tarantella::Work;

int failed = 0;

void expect(bool ok, const char* what) {
  if (!ok) std::printf("not so: %s\n", what);
  failed += ok ? 0 : 1;
}
#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__)

template <typename Call>
void expect_error(const Call& call, tnt_status_t status, const char* part) {
  try {
    call();
    expect(false, part);
  } catch (const tarantella::Error& error) {
    expect(error.status() == status && std::strstr(error.what(), part) != nullptr, error.what());
  }
}

static_assert(std::is_nothrow_move_constructible_v<Work> && !std::is_copy_constructible_v<Work>);
static_assert(std::is_nothrow_move_constructible_v<Comm> && !std::is_copy_constructible_v<Comm>);
static_assert(std::is_convertible_v<std::vector<int>&, View<const int>> &&
              !std::is_convertible_v<const std::vector<int>&, View<int>>);
static_assert(!std::is_convertible_v<std::vector<int>&, View<float>>);

void use_collectives(const Comm& world) {
  const std::vector<float> in{1, 2, 3};
  std::array<float, 3> out{};
  const auto is_in = [&] { return std::equal(in.begin(), in.end(), out.begin()) && (out = {}, true); };
  world.all_reduce(in, out);
  EXPECT(is_in());
  world.reduce_scatter(in, out, TNT_MAX);
  EXPECT(is_in());
  world.all_gather(in, View<float>(out.data(), 3));
  EXPECT(is_in());
  world.all_to_all(in, out);
  EXPECT(is_in());
  world.all_reduce_scaled(in, out, 0.5);
  EXPECT(out[2] == 1.5F);
  world.start_all_reduce_scaled(out, out, 2).wait();
  EXPECT(is_in());
  world.reduce(in, out, 0);
  EXPECT(is_in());
  world.gather(in, out, 0);
  EXPECT(is_in());
  world.scatter(in, out, 0);
  EXPECT(is_in());
  const std::vector<std::size_t> counts{3};
  world.all_gather_v(in, out, counts);
  EXPECT(is_in());
  world.reduce_scatter_v(in, out, counts, TNT_MIN);
  EXPECT(is_in());
  world.all_to_all_v(in, out, counts, counts);
  EXPECT(is_in());
  world.start_reduce(in, out, 0, TNT_PROD).wait();
  EXPECT(is_in());
  world.start_gather(in, out, 0).wait();
  EXPECT(is_in());
  world.start_scatter(in, out, 0).wait();
  EXPECT(is_in());
  world.start_all_gather_v(in, out, counts).wait();
  EXPECT(is_in());
  world.start_reduce_scatter_v(in, out, counts).wait();
  EXPECT(is_in());
  world.start_all_to_all_v(in, out, counts, counts).wait();
  EXPECT(is_in());
  expect_error(
      [&] {
        world.all_gather_v(in, out, std::vector<std::size_t>{3, 0});
      },
      TNT_INVALID_ARGUMENT, "all_gather_v: there are 2 counts of 1 ranks");
  expect_error([&] { world.reduce(in, View<float>(out.data(), 2), 0); }, TNT_INVALID_ARGUMENT,
               "reduce: in has 3 elements and out 2");
  world.broadcast(out, 0);
  world.barrier();
  expect_error([&] { world.all_reduce(in, View<float>(out.data(), 2)); }, TNT_INVALID_ARGUMENT,
               "all_reduce: in has 3 elements and out 2");
  expect_error([&] { world.broadcast(out, 7); }, TNT_INVALID_ARGUMENT, "root 7 is not one of");
  expect_error([&] { world.send(in, 0); }, TNT_INVALID_ARGUMENT, "to 0 is the calling rank itself");
  expect_error([&] { world.recv(out, 0); }, TNT_INVALID_ARGUMENT, "from 0 is the calling rank itself");
  expect_error([&] { (void)world.start_send(in, 0); }, TNT_INVALID_ARGUMENT, "to 0 is the calling rank itself");
  expect_error([&] { (void)world.start_recv(out, 0); }, TNT_INVALID_ARGUMENT, "from 0 is the calling rank itself");
}

void use_works(const Comm& world) {
  const std::vector<std::int64_t> in{1, 2};
  std::vector<std::int64_t> out(2);
  std::vector<Work> works(2);
  expect_error([&] { (void)Work::wait_any(works); }, TNT_INVALID_ARGUMENT, "works has no operation to wait for");
  works.push_back(world.start_all_reduce(in, out));
  works.push_back(world.start_reduce_scatter(in, out));
  works.push_back(world.start_all_gather(in, out));
  works.push_back(world.start_all_to_all(in, out));
  works.push_back(world.start_broadcast(out, 0));
  works.push_back(world.start_barrier());
  works.back().wait();
  EXPECT(out == in);
  EXPECT(works[2].wait_for(10s));
  EXPECT(works[3].test());
  EXPECT(Work::wait_any(works) == 2);
  works[2] = {};
  EXPECT(works[2].get() == nullptr && Work::wait_any_for(works, 1ms) == 3U);
  expect_error([&] { works[2].wait(); }, TNT_INVALID_ARGUMENT, "work is NULL");
}

void use_groups(const Comm& world) {
  world.set_timeout(30s);
  world.set_timeout(0s);
  expect_error([&] { world.set_timeout(-1s); }, TNT_INVALID_ARGUMENT, "seconds is -1");
  const std::vector<int> all{0};
  const Comm group = world.create_group(all);
  std::optional<Comm> part = world.split(0);
  EXPECT(group.size() == 1 && part.has_value() && part->get() != world.get() && !world.split(-1).has_value());
  const tnt_comm_t handle = part->get();
  Comm moved = std::move(*part);
  part.reset();
  moved.barrier();
  EXPECT(moved.get() == handle);
  moved = Comm::world();
  try {
    moved.connect_device(-1);
    EXPECT(false);
  } catch (const tarantella::Error& error) {
    EXPECT(error.status() == TNT_INVALID_ARGUMENT || error.status() == TNT_UNSUPPORTED);  // without a GPU
  }
  int rank = 0;
  EXPECT(tnt_comm_rank(handle, &rank) == TNT_INVALID_ARGUMENT);  // its owner has ended
}

void use_call_groups(const Comm& world) {
  const Comm part = *world.split(0);
  const std::vector<int> in{1, 2};
  std::vector<int> out(2);
  std::vector<int> other(2);
  {
    const tarantella::Group group;
    world.all_reduce(in, out);
    part.broadcast(other, 0);
    EXPECT(out[1] == 0);
  }
  EXPECT(out == in);
  tarantella::Group group;
  part.reduce(in, other, 0);
  group.end();
  EXPECT(other == in);
  out.assign(2, 0);
  expect_error(
      [&] {
        const tarantella::Group refused;
        world.all_reduce(in, out);
        (void)tnt_barrier(world.get(), nullptr, nullptr);
        world.all_reduce(in, View<int>(out.data(), 1));
      },
      TNT_INVALID_ARGUMENT, "all_reduce: in has 2 elements and out 1");
  EXPECT(out[1] == 0);  // the exception has dropped the group
  expect_error(
      [&] {
        const tarantella::Group refused;
        (void)tnt_barrier(nullptr, nullptr, nullptr);
      },
      TNT_INVALID_ARGUMENT, "comm is NULL");
  expect_error(
      [&] {
        const tarantella::Group refused;
        (void)world.start_barrier();
      },
      TNT_INVALID_ARGUMENT, "work must be NULL in a group");
  world.barrier();
}

void use_errors(const Comm& world) {
  const Comm part = *world.split(0);
  part.set_error_mode(TNT_ERRORS_RETURN);
  part.check_errors();
  part.abort("enough");
  expect_error([&] { part.check_errors(); }, TNT_ABORTED, "rank 0: enough");
  const Comm smaller = part.shrink();
  expect_error([&] { part.barrier(); }, TNT_ABORTED, "rank 0: enough");
  expect_error([&] { (void)part.shrink(); }, TNT_INVALID_ARGUMENT, "this communicator was shrunk before");
  smaller.barrier();
  world.barrier();
}

void use_newcomers(const Comm& world) {
  const tnt_unique_id_t id = tarantella::unique_id();
  const Comm alone = Comm::join(id, 1, 0);
  alone.barrier();
  EXPECT(alone.size() == 1 && alone.get() != world.get());
  expect_error([&] { (void)world.grow(1, &id); }, TNT_INVALID_ARGUMENT, "ranks is 1: the larger communicator has more than");
  expect_error([] { (void)tarantella::unique_id("word"); }, TNT_INVALID_ARGUMENT, "rendezvous word: expected tcp://");
}

void use_a_reducer(const Comm& world) {
  const std::array<tnt_tensor_t, 2> tensors{{{"a", 2, TNT_FLOAT32}, {"b", 1, TNT_FLOAT32}}};
  const Reducer reducer(world, tensors);
  std::array<float, 2> a{1, 2};
  float b = 3;
  reducer.ready(1, &b, &b, 0.5);
  reducer.ready(0, a.data(), a.data());
  reducer.wait_bucket(0);
  reducer.finish();
  EXPECT(a[1] == 2 && b == 1.5F);
  const std::size_t both[] = {1, 0};
  const void* const gradients[] = {&b, a.data()};
  void* const outs[] = {&b, nullptr};
  const double scales[] = {2.0, 0.5};
  reducer.ready_many(both, gradients, outs, scales, 2);
  reducer.finish();
  EXPECT(b == 3 && a[1] == 2);
  EXPECT(reducer.bucket_count() == 1 && reducer.bucket(0).n_tensors == 2 && reducer.stats().steps == 2);
  expect_error([&] { (void)reducer.bucket(1); }, TNT_INVALID_ARGUMENT, "bucket 1 is not in the plan");
}

}  // namespace

int main() {
  tnt_init_options_t options = TNT_INIT_OPTIONS_INITIALIZER;
  options.rank = 1;
  expect_error([&] { const tarantella::Job job(options); }, TNT_INVALID_ARGUMENT, "rank 1 of 1 ranks is invalid");
  expect_error([] { (void)Comm::world(); }, TNT_INVALID_ARGUMENT, "tnt_init has not been called");
  Work left;
  {
    tarantella::Job job;
    const Comm world = Comm::world();
    EXPECT(world.rank() == 0 && world.size() == 1 && world.local_rank() == 0 && world.local_size() == 1);
    EXPECT(std::strcmp(world.transport(), "local") == 0);
    use_collectives(world);
    use_works(world);
    use_groups(world);
    use_call_groups(world);
    use_errors(world);
    use_newcomers(world);
    use_a_reducer(world);
    left = world.start_barrier();
    world.abort("enough");
    expect_error([&] { world.barrier(); }, TNT_ABORTED, "rank 0: enough");
    const std::array<Work, 1> works{world.start_barrier()};
    EXPECT(Work::wait_any(works) == 0);
    expect_error([&] { (void)works[0].wait_for(1s); }, TNT_ABORTED, "rank 0: enough");
    job.finalize();
  }  // works and the job end after tnt_finalize, which has destroyed their handles
  return failed != 0 ? 1 : 0;
}
