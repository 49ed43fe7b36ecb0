// Every collective on 1 to 8 ranks, for every type, operation and limit of the shared-memory algorithms, against a reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "support/array.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::all_dtypes;
using testing::all_ops;
using testing::Array;
using testing::call;
using testing::exact_values;
using testing::integer_ops;
using testing::integers;
using testing::reduced;
using testing::run_threads;

constexpr std::size_t slot_bytes = 256 * 1024;
constexpr std::size_t small_bytes = 8 * 1024;

std::string name_of(const char* what, tnt_dtype_t dtype, tnt_op_t op, std::size_t count) {
  return fmt::format("{} {} of {} {}", what, op_name(op), count, dtype_name(dtype));
}

// The inputs of all ranks; every rank generates the same.
std::vector<Array> inputs(int ranks, tnt_dtype_t dtype, std::size_t count) {
  std::vector<Array> result;
  for (int rank = 0; rank < ranks; ++rank) result.push_back(exact_values(dtype, count, static_cast<unsigned>(rank)));
  return result;
}

void all_reduce(Communicator& comm, const Array& in, Array& out, tnt_op_t op) {
  const TensorView view{.in = in.data(), .out = out.data(), .count = in.count()};
  all_reduce(comm, tnt::FusedBuffer({&view, 1}, in.dtype()), op, call());
}

void check_all_reduce(int ranks, tnt_dtype_t dtype, tnt_op_t op, std::size_t count) {
  const auto in = inputs(ranks, dtype, count);
  const Array expected = reduced(in, op);
  run_threads(ranks, [&](Communicator& comm) {
    const Array& own = in[static_cast<std::size_t>(comm.rank())];
    Array out(dtype, count);
    all_reduce(comm, own, out, op);
    EXPECT_EQ(out, expected) << name_of("all_reduce", dtype, op, count);
    Array in_place = own;
    all_reduce(comm, in_place, in_place, op);
    EXPECT_EQ(in_place, expected) << name_of("all_reduce in place", dtype, op, count);
  });
}

// Element counts around the limits that matter for the type: cache lines, LL messages, one slot.
std::vector<std::size_t> borders(tnt_dtype_t dtype) {
  std::vector<std::size_t> result{0, 1, 2};
  for (const std::size_t bytes : {std::size_t{64}, small_bytes, slot_bytes}) {
    const std::size_t count = bytes / dtype_size(dtype);
    for (const std::size_t near : {count - 1, count, count + 1}) result.push_back(near);
  }
  return result;
}

class CollectivesTest : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] std::size_t n() const { return static_cast<std::size_t>(ranks); }
  const int ranks = GetParam();
};

TEST_P(CollectivesTest, AllReduceOfEveryTypeAndOperation) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    for (const tnt_op_t op : all_ops) {
      for (const std::size_t count : {std::size_t{17}, small_bytes / dtype_size(dtype) + 40}) {
        check_all_reduce(ranks, dtype, op, count);
      }
    }
  }
}

TEST_P(CollectivesTest, AllReduceOfBitsAndTruthValues) {
  for (const tnt_dtype_t dtype : integers) {
    for (const tnt_op_t op : integer_ops) {
      for (const std::size_t count : {std::size_t{17}, small_bytes / dtype_size(dtype) + 40}) {
        check_all_reduce(ranks, dtype, op, count);
      }
    }
  }
}

TEST_P(CollectivesTest, AllReduceAroundEveryBorder) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16, TNT_INT64, TNT_UINT8}) {
    for (const std::size_t count : borders(dtype)) check_all_reduce(ranks, dtype, TNT_SUM, count);
  }
  check_all_reduce(ranks, TNT_FLOAT32, TNT_AVG, 200'001);
}

TEST_P(CollectivesTest, ReduceScatter) {
  const std::size_t block = slot_bytes / n() / 64 * 64;
  for (const tnt_dtype_t dtype : all_dtypes) {
    for (const tnt_op_t op : {TNT_SUM, TNT_AVG, TNT_MIN, TNT_LXOR, TNT_BOR}) {
      if (op >= TNT_LAND && std::count(std::begin(integers), std::end(integers), dtype) == 0) continue;
      const std::size_t chunk = block / dtype_size(dtype);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33}, chunk, chunk + 1}) {
        if (count > 33 && op != TNT_SUM) continue;
        const auto in = inputs(ranks, dtype, count * n());
        const Array expected = reduced(in, op);
        run_threads(ranks, [&](Communicator& comm) {
          const auto self = static_cast<std::size_t>(comm.rank());
          Array out(dtype, count);
          reduce_scatter(comm, in[self].data(), out.data(), count, dtype, op, call());
          EXPECT_EQ(out, expected.part(self * count, count)) << name_of("reduce_scatter", dtype, op, count);
        });
      }
    }
  }
}

TEST_P(CollectivesTest, AllGather) {
  for (const tnt_dtype_t dtype : all_dtypes) {
    const std::size_t slot = slot_bytes / dtype_size(dtype);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{65}, slot - 1, slot, slot + 1}) {
      if (count > 65 && dtype != TNT_FLOAT32 && dtype != TNT_UINT8) continue;  // bytes are copied, so any values will do
      const auto in = inputs(ranks, dtype, count);
      Array expected(dtype, count * n());
      for (std::size_t rank = 0; rank < n(); ++rank) expected.place(rank * count, in[rank]);
      run_threads(ranks, [&](Communicator& comm) {
        const auto self = static_cast<std::size_t>(comm.rank());
        Array out(dtype, count * n());
        all_gather(comm, in[self].data(), out.data(), count, dtype, call());
        EXPECT_EQ(out, expected) << name_of("all_gather", dtype, TNT_SUM, count);
        Array in_place(dtype, count * n());
        in_place.place(self * count, in[self]);
        const auto* own = static_cast<const std::byte*>(in_place.data()) + self * count * dtype_size(dtype);
        all_gather(comm, own, in_place.data(), count, dtype, call());
        EXPECT_EQ(in_place, expected) << name_of("all_gather in place", dtype, TNT_SUM, count);
      });
    }
  }
}

TEST_P(CollectivesTest, BroadcastFromEveryRoot) {
  for (int root = 0; root < ranks; ++root) {
    for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_UINT8}) {
      const std::size_t slot = slot_bytes / dtype_size(dtype);
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, slot, slot + 1}) {
        const Array in = exact_values(dtype, count, static_cast<unsigned>(root));
        run_threads(ranks, [&](Communicator& comm) {
          Array out(dtype, count);
          broadcast(comm, comm.rank() == root ? in.data() : nullptr, out.data(), count, dtype, root, call());
          EXPECT_EQ(out, in) << name_of("broadcast", dtype, TNT_SUM, count) << " from " << root;
          Array in_place = comm.rank() == root ? in : Array(dtype, count);
          broadcast(comm, in_place.data(), in_place.data(), count, dtype, root, call());
          EXPECT_EQ(in_place, in) << "in place";
        });
      }
    }
  }
}

TEST_P(CollectivesTest, AllToAll) {
  const std::size_t block = slot_bytes / n() / 64 * 64;
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_UINT8, TNT_INT64}) {
    const std::size_t chunk = block / dtype_size(dtype);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{33}, chunk - 1, chunk, 2 * chunk + 1}) {
      const auto in = inputs(ranks, dtype, count * n());
      run_threads(ranks, [&](Communicator& comm) {
        const auto self = static_cast<std::size_t>(comm.rank());
        Array expected(dtype, count * n());
        for (std::size_t rank = 0; rank < n(); ++rank) expected.place(rank * count, in[rank].part(self * count, count));
        Array out(dtype, count * n());
        all_to_all(comm, in[self].data(), out.data(), count, dtype, call());
        EXPECT_EQ(out, expected) << name_of("all_to_all", dtype, TNT_SUM, count);
        Array in_place = in[self];
        all_to_all(comm, in_place.data(), in_place.data(), count, dtype, call());
        EXPECT_EQ(in_place, expected) << name_of("all_to_all in place", dtype, TNT_SUM, count);
      });
    }
  }
}

// Roots: the first, the last and one between. All ranks share the inputs.
std::vector<int> some_roots(int ranks) {
  std::vector<int> roots{0};
  if (ranks > 1) roots.push_back(ranks - 1);
  if (ranks > 3) roots.push_back(2);
  return roots;
}

TEST_P(CollectivesTest, ReduceToARoot) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16, TNT_INT8, TNT_UINT64}) {
    for (const std::size_t count : borders(dtype)) {
      for (const tnt_op_t op : {TNT_SUM, TNT_AVG, TNT_MAX}) {
        if (count > 100 && op != TNT_SUM) continue;
        const auto in = inputs(ranks, dtype, count);
        const Array expected = reduced(in, op);
        const Array untouched = exact_values(dtype, count, 77);
        for (const int root : some_roots(ranks)) {
          run_threads(ranks, [&](Communicator& comm) {
            Array out = untouched;
            reduce(comm, in[static_cast<std::size_t>(comm.rank())].data(), out.data(), count, dtype, op, root, call());
            EXPECT_EQ(out, comm.rank() == root ? expected : untouched) << name_of("reduce", dtype, op, count) << " to " << root;
            Array in_place = in[static_cast<std::size_t>(comm.rank())];
            reduce(comm, in_place.data(), comm.rank() == root ? in_place.data() : nullptr, count, dtype, op, root, call());
            if (comm.rank() == root) {
              EXPECT_EQ(in_place, expected) << name_of("reduce in place", dtype, op, count);
            }
          });
        }
      }
    }
  }
}

TEST_P(CollectivesTest, GatherAndScatter) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_UINT8}) {
    const std::size_t slot = slot_bytes / dtype_size(dtype);
    const std::size_t block = slot_bytes / n() / 64 * 64 / dtype_size(dtype);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{65}, block + 1, slot, slot + 1}) {
      const auto in = inputs(ranks, dtype, count);
      Array whole(dtype, count * n());
      for (std::size_t rank = 0; rank < n(); ++rank) whole.place(rank * count, in[rank]);
      for (const int root : some_roots(ranks)) {
        run_threads(ranks, [&](Communicator& comm) {
          const auto self = static_cast<std::size_t>(comm.rank());
          const bool is_root = comm.rank() == root;
          Array gathered(dtype, is_root ? count * n() : 0);
          gather(comm, in[self].data(), is_root ? gathered.data() : nullptr, count, dtype, root, call());
          if (is_root) {
            EXPECT_EQ(gathered, whole) << name_of("gather", dtype, TNT_SUM, count) << " to " << root;
            auto* own = static_cast<std::byte*>(gathered.data()) + self * count * dtype_size(dtype);
            gather(comm, own, gathered.data(), count, dtype, root, call());
            EXPECT_EQ(gathered, whole) << "in place";
            scatter(comm, gathered.data(), own, count, dtype, root, call());
            EXPECT_EQ(gathered, whole) << "scatter in place";
          } else {
            gather(comm, in[self].data(), nullptr, count, dtype, root, call());
            Array out(dtype, count);
            scatter(comm, nullptr, out.data(), count, dtype, root, call());
            EXPECT_EQ(out, in[self]) << name_of("scatter", dtype, TNT_SUM, count) << " from " << root;
          }
          Array out(dtype, count);
          scatter(comm, is_root ? whole.data() : nullptr, out.data(), count, dtype, root, call());
          EXPECT_EQ(out, in[self]) << name_of("scatter", dtype, TNT_SUM, count) << " from " << root;
        });
      }
    }
  }
}

// Blocks of very different sizes, empty ones among them.
std::vector<std::size_t> uneven_counts(std::size_t n, std::size_t largest, std::size_t turn) {
  std::vector<std::size_t> counts;
  for (std::size_t rank = 0; rank < n; ++rank) {
    const std::size_t which = (rank + turn) % 4;
    counts.push_back(which == 0 ? largest : which == 1 ? 0 : which == 2 ? largest / 3 + rank : 1);
  }
  return counts;
}

std::size_t before(const std::vector<std::size_t>& counts, std::size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), std::size_t{0});
}

TEST_P(CollectivesTest, AllGatherOfUnevenBlocks) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_UINT8}) {
    for (const std::size_t largest : {std::size_t{0}, std::size_t{9}, slot_bytes / dtype_size(dtype) + 5}) {
      for (const std::size_t turn : {0U, 1U, 2U}) {
        const auto counts = uneven_counts(n(), largest, turn);
        const Array whole = exact_values(dtype, before(counts, n()), 3);
        run_threads(ranks, [&](Communicator& comm) {
          const auto self = static_cast<std::size_t>(comm.rank());
          const Array own = whole.part(before(counts, self), counts[self]);
          Array out(dtype, whole.count());
          all_gather_v(comm, own.data(), out.data(), counts, dtype, call());
          EXPECT_EQ(out, whole) << largest << ", " << turn;
          Array in_place(dtype, whole.count());
          in_place.place(before(counts, self), own);
          const auto* part = static_cast<const std::byte*>(in_place.data()) + before(counts, self) * dtype_size(dtype);
          all_gather_v(comm, part, in_place.data(), counts, dtype, call());
          EXPECT_EQ(in_place, whole) << "in place, " << largest << ", " << turn;
        });
      }
    }
  }
}

TEST_P(CollectivesTest, ReduceScatterOfUnevenBlocks) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16, TNT_INT64}) {
    for (const std::size_t largest : {std::size_t{0}, std::size_t{9}, slot_bytes / dtype_size(dtype) + 5}) {
      for (const std::size_t turn : {0U, 1U, 3U}) {
        const auto counts = uneven_counts(n(), largest, turn);
        const auto in = inputs(ranks, dtype, before(counts, n()));
        const Array expected = reduced(in, TNT_SUM);
        run_threads(ranks, [&](Communicator& comm) {
          const auto self = static_cast<std::size_t>(comm.rank());
          Array out(dtype, counts[self]);
          reduce_scatter_v(comm, in[self].data(), out.data(), counts, dtype, TNT_SUM, call());
          EXPECT_EQ(out, expected.part(before(counts, self), counts[self]))
              << dtype_name(dtype) << ", " << largest << ", " << turn;
        });
      }
    }
  }
}

// Rank r sends the block of uneven_counts(.., r) to each rank.
TEST_P(CollectivesTest, AllToAllOfUnevenBlocks) {
  for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_UINT8}) {
    for (const std::size_t largest :
         {std::size_t{0}, std::size_t{9}, std::size_t{40'000}, 2 * slot_bytes / dtype_size(dtype)}) {
      std::vector<std::vector<std::size_t>> sent;
      std::vector<Array> in;
      for (std::size_t rank = 0; rank < n(); ++rank) {
        sent.push_back(uneven_counts(n(), largest, rank));
        in.push_back(exact_values(dtype, before(sent[rank], n()), static_cast<unsigned>(rank)));
      }
      run_threads(ranks, [&](Communicator& comm) {
        const auto self = static_cast<std::size_t>(comm.rank());
        std::vector<std::size_t> received;
        for (std::size_t rank = 0; rank < n(); ++rank) received.push_back(sent[rank][self]);
        Array expected(dtype, before(received, n()));
        for (std::size_t rank = 0; rank < n(); ++rank) {
          expected.place(before(received, rank), in[rank].part(before(sent[rank], self), received[rank]));
        }
        Array out(dtype, expected.count());
        all_to_all_v(comm, in[self].data(), out.data(), sent[self], received, dtype, call());
        EXPECT_EQ(out, expected) << dtype_name(dtype) << ", " << largest;
      });
    }
  }
}

TEST_P(CollectivesTest, NoBufferNeedsAlignment) {
  constexpr std::size_t count = 3001;
  const auto in = inputs(ranks, TNT_FLOAT32, count * n());
  const Array expected = reduced(in, TNT_SUM);
  run_threads(ranks, [&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    const auto bytes = in[self].bytes();
    std::vector<std::byte> from(bytes.size() + 1);
    std::vector<std::byte> to(bytes.size() + 1);
    std::copy(bytes.begin(), bytes.end(), from.begin() + 1);
    const auto result = [&](std::size_t elements) {
      return std::vector<std::byte>(to.begin() + 1, to.begin() + 1 + static_cast<std::ptrdiff_t>(elements * sizeof(float)));
    };
    const auto expect = [&](const Array& array) {
      EXPECT_EQ(result(array.count()), std::vector<std::byte>(array.bytes().begin(), array.bytes().end()));
    };
    const TensorView whole{.in = from.data() + 1, .out = to.data() + 1, .count = count * n()};
    all_reduce(comm, tnt::FusedBuffer({&whole, 1}, TNT_FLOAT32), TNT_SUM, call());
    expect(expected);
    const TensorView little{.in = from.data() + 1, .out = to.data() + 1, .count = 9, .scale = 2.0};
    all_reduce(comm, tnt::FusedBuffer({&little, 1}, TNT_FLOAT32), TNT_MAX, call());
    reduce_scatter(comm, from.data() + 1, to.data() + 1, count, TNT_FLOAT32, TNT_SUM, call());
    expect(expected.part(self * count, count));
  });
}

// Tensor i has i * 1000 elements. Rank 0 does not contribute to some tensors and does not want one result.
TEST_P(CollectivesTest, PiecesWithScalesAreOneRun) {
  constexpr std::size_t n_tensors = 9;
  constexpr std::size_t unwanted = 5;
  const auto input = [](std::size_t rank, std::size_t tensor) {
    return exact_values(TNT_FLOAT32, tensor * 1000, static_cast<unsigned>(rank * 100 + tensor));
  };
  const auto scale = [](std::size_t rank, std::size_t tensor) {
    return rank == 0 && tensor % 4 == 3 ? 0.0 : 0.25 * static_cast<double>(rank + 1);
  };
  std::vector<Array> expected;
  for (std::size_t tensor = 0; tensor < n_tensors; ++tensor) {
    std::vector<Array> in;
    for (std::size_t rank = 0; rank < n(); ++rank) in.push_back(input(rank, tensor));
    expected.push_back(testing::repeated(TNT_FLOAT32, tensor * 1000, [&](std::size_t i) {
      double sum = 0;
      for (std::size_t rank = 0; rank < n() && tensor != unwanted; ++rank) sum += scale(rank, tensor) * in[rank].get(i);
      return sum;
    }));
  }
  run_threads(ranks, [&](Communicator& comm) {
    const auto self = static_cast<std::size_t>(comm.rank());
    std::vector<Array> in;
    std::vector<Array> out;
    std::vector<TensorView> views;
    for (std::size_t tensor = 0; tensor < n_tensors; ++tensor) {
      in.push_back(input(self, tensor));
      out.emplace_back(TNT_FLOAT32, tensor * 1000);
    }
    for (std::size_t tensor = 0; tensor < n_tensors; ++tensor) {
      views.push_back({.in = scale(self, tensor) == 0.0 ? nullptr : in[tensor].data(),
                       .out = tensor == unwanted ? nullptr : out[tensor].data(),
                       .count = tensor * 1000,
                       .scale = scale(self, tensor)});
    }
    all_reduce(comm, tnt::FusedBuffer(views, TNT_FLOAT32), TNT_SUM, call());
    for (std::size_t tensor = 0; tensor < n_tensors; ++tensor) EXPECT_EQ(out[tensor], expected[tensor]) << "tensor " << tensor;
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest, ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 8}, {1, 3, 4})));

}  // namespace
}  // namespace tnt
