// Collectives between devices compared with an independent reference: by NCCL, through pinned memory and hierarchical, for
// every element type and operation, several numbers of ranks, in place and not.
#include <gtest/gtest.h>

#include <vector>

#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"
#include "support/effort.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::at;
using testing::Backend;
using testing::inputs;
using testing::NcclRank;
using testing::NcclTest;
using testing::OnDevice;
using testing::put;

class DeviceCollectives : public NcclTest, public ::testing::WithParamInterface<std::tuple<Backend, int>> {
 protected:
  static void run(const testing::NcclBody& body) {
    testing::run_devices(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

TEST_P(DeviceCollectives, AllReduce) {
  run([](NcclRank& rank) {
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      for (const tnt_op_t op : testing::all_ops) {
        const auto in = inputs(rank.comm.size(), dtype, 37, 3);
        const Array expected = testing::reduced(in, op);
        const OnDevice source = put(rank, in[at(rank.comm.rank())]);
        const OnDevice target = put(rank, Array(dtype, 37));
        all_reduce(rank.comm, source.get(), target.get(), 37, dtype, op, "not in place");
        EXPECT_EQ(target.read(), expected) << dtype << " " << op;
        all_reduce(rank.comm, source.get(), source.get(), 37, dtype, op, "in place");
        EXPECT_EQ(source.read(), expected) << dtype << " " << op;
      }
    }
  });
}

TEST_P(DeviceCollectives, AllReduceOfScaledContributions) {
  run([](NcclRank& rank) {
    for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_FLOAT64, TNT_FLOAT16}) {
      const auto in = inputs(rank.comm.size(), dtype, 37, 3);
      const Array expected = testing::repeated(dtype, 37, [&](std::size_t i) {
        double sum = 0;
        for (std::size_t each = 0; each < in.size(); ++each) sum += 0.5 * static_cast<double>(each + 1) * in[each].get(i);
        return sum;
      });
      const OnDevice source = put(rank, in[at(rank.comm.rank())]);
      const OnDevice target = put(rank, Array(dtype, 37));
      all_reduce_scaled(rank.comm, source.get(), target.get(), 37, dtype, 0.5 * (rank.comm.rank() + 1), "");
      EXPECT_EQ(target.read(), expected) << dtype;
      all_reduce_scaled(rank.comm, source.get(), source.get(), 37, dtype, 0.5 * (rank.comm.rank() + 1), "in place");
      EXPECT_EQ(source.read(), expected) << dtype;
    }
  });
}

TEST_P(DeviceCollectives, ReduceScatter) {
  run([](NcclRank& rank) {
    const auto ranks = at(rank.comm.size());
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      for (const tnt_op_t op : testing::all_ops) {
        const auto in = inputs(rank.comm.size(), dtype, 11 * ranks, 5);
        const Array expected = testing::reduced(in, op).part(11 * at(rank.comm.rank()), 11);
        const OnDevice source = put(rank, in[at(rank.comm.rank())]);
        const OnDevice target = put(rank, Array(dtype, 11));
        reduce_scatter(rank.comm, source.get(), target.get(), 11, dtype, op, "");
        EXPECT_EQ(target.read(), expected) << dtype << " " << op;
        std::byte* own = source.get() + at(rank.comm.rank()) * 11 * dtype_size(dtype);
        reduce_scatter(rank.comm, source.get(), own, 11, dtype, op, "");
        EXPECT_EQ(source.read().part(11 * at(rank.comm.rank()), 11), expected) << dtype << " " << op;
      }
    }
  });
}

TEST_P(DeviceCollectives, AllGather) {
  run([](NcclRank& rank) {
    const auto ranks = at(rank.comm.size());
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      const auto in = inputs(rank.comm.size(), dtype, 13, 7);
      Array expected(dtype, 13 * ranks);
      for (std::size_t each = 0; each < ranks; ++each) expected.place(13 * each, in[each]);
      const OnDevice source = put(rank, in[at(rank.comm.rank())]);
      const OnDevice target = put(rank, Array(dtype, 13 * ranks));
      all_gather(rank.comm, source.get(), target.get(), 13, dtype, "");
      EXPECT_EQ(target.read(), expected) << dtype;

      Array own(dtype, 13 * ranks);
      own.place(13 * at(rank.comm.rank()), in[at(rank.comm.rank())]);
      const OnDevice both = put(rank, own);
      all_gather(rank.comm, both.get() + at(rank.comm.rank()) * 13 * dtype_size(dtype), both.get(), 13, dtype, "");
      EXPECT_EQ(both.read(), expected) << dtype;
    }
  });
}

TEST_P(DeviceCollectives, Broadcast) {
  run([](NcclRank& rank) {
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      for (int root = 0; root < rank.comm.size(); ++root) {
        const auto in = inputs(rank.comm.size(), dtype, 17, 9);
        const OnDevice source = put(rank, in[at(rank.comm.rank())]);
        const OnDevice target = put(rank, Array(dtype, 17));
        const bool is_root = rank.comm.rank() == root;
        broadcast(rank.comm, is_root ? source.get() : nullptr, target.get(), 17, dtype, root, "");
        EXPECT_EQ(target.read(), in[at(root)]) << dtype;
        broadcast(rank.comm, source.get(), source.get(), 17, dtype, root, "");
        EXPECT_EQ(source.read(), in[at(root)]) << dtype;
      }
    }
  });
}

TEST_P(DeviceCollectives, AllToAll) {
  run([](NcclRank& rank) {
    const auto ranks = at(rank.comm.size());
    for (const tnt_dtype_t dtype : testing::all_dtypes) {
      const auto in = inputs(rank.comm.size(), dtype, 5 * ranks, 11);
      Array expected(dtype, 5 * ranks);
      for (std::size_t each = 0; each < ranks; ++each) {
        expected.place(5 * each, in[each].part(5 * at(rank.comm.rank()), 5));
      }
      const OnDevice source = put(rank, in[at(rank.comm.rank())]);
      const OnDevice target = put(rank, Array(dtype, 5 * ranks));
      all_to_all(rank.comm, source.get(), target.get(), 5, dtype, "");
      EXPECT_EQ(target.read(), expected) << dtype;
    }
  });
}

// From 2.28 on NCCL has a function for it, which its copy engines can serve; before, it is a group of messages.
TEST_F(NcclTest, AnAllToAllIsOneCallWhereNcclHasIt) {
  for (const auto& [version, calls] : {std::pair{22707, 0}, std::pair{22809, 3}}) {
    testing::FakeNccl::set("version", version);
    const long before = testing::FakeNccl::count("ncclAlltoAll");
    testing::run_nccl(3, [](NcclRank& rank) {
      const auto in = inputs(3, TNT_FLOAT32, 15, 11);
      Array expected(TNT_FLOAT32, 15);
      for (std::size_t each = 0; each < 3; ++each) expected.place(5 * each, in[each].part(5 * at(rank.comm.rank()), 5));
      const OnDevice source = put(rank, in[at(rank.comm.rank())]);
      const OnDevice target = put(rank, Array(TNT_FLOAT32, 15));
      all_to_all(rank.comm, source.get(), target.get(), 5, TNT_FLOAT32, "");
      EXPECT_EQ(target.read(), expected);
    });
    EXPECT_EQ(testing::FakeNccl::count("ncclAlltoAll") - before, calls) << version;
  }
}

TEST_P(DeviceCollectives, ReduceGatherAndScatter) {
  run([](NcclRank& rank) {
    const auto ranks = at(rank.comm.size());
    const auto self = at(rank.comm.rank());
    for (const tnt_dtype_t dtype : {TNT_FLOAT32, TNT_BFLOAT16, TNT_UINT64}) {
      for (int root = 0; root < rank.comm.size(); ++root) {
        const bool is_root = rank.comm.rank() == root;
        const auto in = inputs(rank.comm.size(), dtype, 9, 15);
        const OnDevice source = put(rank, in[self]);
        const OnDevice target = put(rank, Array(dtype, 9));
        reduce(rank.comm, source.get(), is_root ? target.get() : nullptr, 9, dtype, TNT_SUM, root, "");
        if (is_root) {
          EXPECT_EQ(target.read(), testing::reduced(in, TNT_SUM)) << dtype;
        }
        Array expected(dtype, 9 * ranks);
        for (std::size_t each = 0; each < ranks; ++each) expected.place(9 * each, in[each]);
        const OnDevice whole = put(rank, Array(dtype, 9 * ranks));
        gather(rank.comm, source.get(), is_root ? whole.get() : nullptr, 9, dtype, root, "");
        if (is_root) {
          EXPECT_EQ(whole.read(), expected) << dtype;
          std::byte* const own = whole.get() + self * 9 * dtype_size(dtype);
          gather(rank.comm, own, whole.get(), 9, dtype, root, "in place");
          EXPECT_EQ(whole.read(), expected) << dtype;
          scatter(rank.comm, whole.get(), own, 9, dtype, root, "in place");
          EXPECT_EQ(whole.read(), expected) << dtype;
        } else {
          gather(rank.comm, source.get(), nullptr, 9, dtype, root, "");
          scatter(rank.comm, nullptr, target.get(), 9, dtype, root, "");
          EXPECT_EQ(target.read(), in[self]) << dtype;
        }
        scatter(rank.comm, is_root ? whole.get() : nullptr, target.get(), 9, dtype, root, "");
        EXPECT_EQ(target.read(), in[self]) << dtype;
      }
    }
  });
}

TEST_P(DeviceCollectives, UnevenBlocks) {
  run([](NcclRank& rank) {
    const auto ranks = at(rank.comm.size());
    const auto self = at(rank.comm.rank());
    const tnt_dtype_t dtype = TNT_FLOAT32;
    std::vector<std::size_t> counts;
    std::vector<std::size_t> begins{0};
    for (std::size_t each = 0; each < ranks; ++each) {
      counts.push_back(each == 1 ? 0 : 5 * each + 2);
      begins.push_back(begins.back() + counts.back());
    }
    const auto in = inputs(rank.comm.size(), dtype, begins.back(), 17);
    const OnDevice own = put(rank, in[0].part(begins[self], counts[self]));
    const OnDevice whole = put(rank, Array(dtype, begins.back()));
    all_gather_v(rank.comm, own.get(), whole.get(), counts, dtype, "");
    EXPECT_EQ(whole.read(), in[0]);
    all_gather_v(rank.comm, whole.get() + begins[self] * sizeof(float), whole.get(), counts, dtype, "in place");
    EXPECT_EQ(whole.read(), in[0]);

    const OnDevice contribution = put(rank, in[self]);
    const OnDevice sums = put(rank, Array(dtype, counts[self]));
    reduce_scatter_v(rank.comm, contribution.get(), sums.get(), counts, dtype, TNT_SUM, "");
    EXPECT_EQ(sums.read(), testing::reduced(in, TNT_SUM).part(begins[self], counts[self]));

    std::vector<std::size_t> received(ranks, counts[self]);  // all ranks send counts[r] elements to rank r
    Array expected(dtype, ranks * counts[self]);
    for (std::size_t each = 0; each < ranks; ++each) {
      expected.place(each * counts[self], in[each].part(begins[self], counts[self]));
    }
    const OnDevice exchanged = put(rank, Array(dtype, expected.count()));
    all_to_all_v(rank.comm, contribution.get(), exchanged.get(), counts, received, dtype, "");
    EXPECT_EQ(exchanged.read(), expected);
  });
}

// Each rank sends as many elements as it has to the next rank; to itself if it is alone.
TEST_P(DeviceCollectives, MessagesRoundTheRing) {
  run([](NcclRank& rank) {
    const int ranks = rank.comm.size();
    const int self = rank.comm.rank();
    const int before = (self + ranks - 1) % ranks;
    const auto in = inputs(ranks, TNT_INT32, 8, 13);
    const OnDevice source = put(rank, in[at(self)]);
    const OnDevice target = put(rank, Array(TNT_INT32, 8));
    const auto halves = inputs(ranks, TNT_FLOAT16, 5, 14);
    const OnDevice half_source = put(rank, halves[at(self)]);
    const OnDevice half_target = put(rank, Array(TNT_FLOAT16, 5));
    const Message messages[] = {{.in = source.get(), .count = at(self) + 1, .dtype = TNT_INT32, .peer = (self + 1) % ranks},
                                {.in = half_source.get(), .count = 5, .dtype = TNT_FLOAT16, .peer = (self + 1) % ranks},
                                {.out = target.get(), .count = at(before) + 1, .dtype = TNT_INT32, .peer = before},
                                {.out = half_target.get(), .count = 5, .dtype = TNT_FLOAT16, .peer = before},
                                {.in = source.get(), .count = 0, .dtype = TNT_INT32, .peer = before}};
    rank.comm.exchange(messages, "");
    EXPECT_EQ(target.read().part(0, at(before) + 1), in[at(before)].part(0, at(before) + 1));
    EXPECT_EQ(half_target.read(), halves[at(before)]);
  });
}

TEST_P(DeviceCollectives, NoElementsAreNoError) {
  run([](NcclRank& rank) {
    for (const tnt_op_t op : testing::all_ops) {
      all_reduce(rank.comm, nullptr, nullptr, 0, TNT_FLOAT32, op, "");
      reduce_scatter(rank.comm, nullptr, nullptr, 0, TNT_FLOAT32, op, "");
    }
    all_gather(rank.comm, nullptr, nullptr, 0, TNT_FLOAT32, "");
    broadcast(rank.comm, nullptr, nullptr, 0, TNT_FLOAT32, 0, "");
    all_to_all(rank.comm, nullptr, nullptr, 0, TNT_FLOAT32, "");
    rank.comm.exchange({}, "");
    rank.device.synchronize(rank.comm.stream());
    EXPECT_NO_THROW(rank.comm.throw_if_aborted());
  });
  EXPECT_EQ(testing::FakeNccl::count("ncclAllReduce"), 0);
}

// NCCL launches all of its reductions together.
TEST_F(NcclTest, UnevenReduceScatterIsOneGroup) {
  testing::run_nccl(3, [](NcclRank& rank) {
    const std::vector<std::size_t> counts{5, 0, 2};
    const OnDevice in = put(rank, inputs(3, TNT_FLOAT32, 7, 1)[at(rank.comm.rank())]);
    const OnDevice out = put(rank, Array(TNT_FLOAT32, 5));
    reduce_scatter_v(rank.comm, in.get(), out.get(), counts, TNT_FLOAT32, TNT_SUM, "");
    rank.device.synchronize(rank.comm.stream());
  });
  EXPECT_EQ(testing::FakeNccl::count("ncclGroupEnd"), 3);
  EXPECT_EQ(testing::FakeNccl::count("ncclReduce"), 6) << "two roots, on three ranks";
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCollectives,
                         ::testing::Combine(::testing::Values(Backend::nccl, Backend::staged, Backend::hierarchical),
                                            ::testing::ValuesIn(testing::some_of({1, 2, 3, 4, 8}, {1, 3, 4}))),
                         [](const auto& info) {
                           return testing::name_of(std::get<0>(info.param)) + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace tnt
