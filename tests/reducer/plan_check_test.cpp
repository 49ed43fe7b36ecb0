// The comparison of plans: silent if they agree, otherwise one message on all ranks that names the rank and the difference.
#include <gtest/gtest.h>

#include <functional>

#include "reducer/plan.hpp"
#include "support/collectives.hpp"
#include "support/thread_ranks.hpp"

namespace tnt {
namespace {

using testing::call;

struct Model {
  std::vector<TensorSpec> tensors{{"a", 10, TNT_FLOAT32}, {"b", 20, TNT_FLOAT64}, {"c", 30, TNT_FLOAT32}};
  std::size_t threshold = 1'000'000;
  std::string context = "Keras 3";
  std::optional<tnt_dtype_t> wire = std::nullopt;
  std::vector<std::size_t> gradient_order{};
};

struct Change {
  const char* name;
  std::function<void(Model&)> apply;  // on the rank that differs
  const char* place;                  // expected in the message
};

class PlanCheckTest : public ::testing::TestWithParam<Change> {};

TEST_P(PlanCheckTest, NamesRankAndPlaceOnAllRanks) {
  for (const int odd : {1, 2}) {
    const std::string message = testing::common_error(3, TNT_MISMATCH, [&](Communicator& comm) {
      Model model;
      if (comm.rank() == odd) GetParam().apply(model);
      try {
        compare_plans(Plan(model.tensors, model.threshold, model.wire, model.gradient_order), model.context, comm, call());
      } catch (const Error&) {
        barrier(comm, call());  // the communicator stays usable
        throw;
      }
    });
    EXPECT_EQ(message, fmt::format("rank {} and rank 0 do not train the same model: {}", odd,
                                   fmt::format(fmt::runtime(GetParam().place), odd)));
  }
}

const Change changes[] = {
    {"Name", [](Model& model) { model.tensors[1].name = "B"; },
     "tensor 1 is 'B' (20 float64) on rank {}, 'b' (20 float64) on rank 0"},
    {"Count", [](Model& model) { model.tensors[2].count = 31; },
     "tensor 2 is 'c' (31 float32) on rank {}, 'c' (30 float32) on rank 0"},
    {"Dtype", [](Model& model) { model.tensors[0].dtype = TNT_INT32; },
     "tensor 0 is 'a' (10 int32) on rank {}, 'a' (10 float32) on rank 0"},
    {"Order", [](Model& model) { std::swap(model.tensors[0], model.tensors[2]); },
     "tensor 0 is 'c' (30 float32) on rank {}, 'a' (10 float32) on rank 0"},
    {"Missing", [](Model& model) { model.tensors.pop_back(); },
     "tensor 2 is nothing more on rank {}, 'c' (30 float32) on rank 0"},
    {"More",
     [](Model& model) {
       model.tensors.push_back({"d", 1, TNT_INT8});
     },
     "tensor 3 is 'd' (1 int8) on rank {}, nothing more on rank 0"},
    {"Owner", [](Model& model) { model.tensors[1].owner = 2; },
     "tensor 1 is 'b' (20 float64, owned by rank 2) on rank {}, 'b' (20 float64) on rank 0"},
    {"Context", [](Model& model) { model.context = "Keras 2"; },
     "version is Tarantella 0.1.0, Keras 2 on rank {}, Tarantella 0.1.0, Keras 3 on rank 0"},
    {"NoContext", [](Model& model) { model.context = ""; },
     "version is Tarantella 0.1.0 on rank {}, Tarantella 0.1.0, Keras 3 on rank 0"},
    {"Wire", [](Model& model) { model.wire = TNT_BFLOAT16; },
     "the type on the wire (gradient_dtype, TNT_GRADIENT_DTYPE) is bfloat16 on rank {}, each tensor's own on rank 0"},
    {"GradientOrder",
     [](Model& model) {
       model.gradient_order = {2, 0, 1};
     },
     "gradient_order[1] is 'a' (10 float32) on rank {}, 'b' (20 float64) on rank 0"},
    {"Threshold", [](Model& model) { model.threshold = 0; },
     "bucket 0 (TNT_FUSION_THRESHOLD) is 1 tensors (30 float32) on rank {}, 2 tensors (40 float32) on rank 0"}};
INSTANTIATE_TEST_SUITE_P(Changes, PlanCheckTest, ::testing::ValuesIn(changes),
                         [](const auto& info) { return std::string(info.param.name); });

// The same numbers of tensors in buckets of the same sizes, but in a different order of buckets.
TEST(PlanCheck, SeesTheOrderOfBuckets) {
  const std::string message = testing::common_error(2, TNT_MISMATCH, [](Communicator& comm) {
    const std::vector<TensorSpec> tensors{{"a", 10, TNT_FLOAT32}, {"b", 10, TNT_INT32}};
    compare_plans(Plan(tensors, comm.rank() == 0 ? 0 : 1'000'000), "", comm, call());
  });
  EXPECT_NE(message.find("bucket 0"), std::string::npos) << message;
}

TEST(PlanCheck, EqualPlansPass) {
  testing::run_threads(4, [](Communicator& comm) {
    const Model model;
    compare_plans(Plan(model.tensors, model.threshold), model.context, comm, call());
    compare_plans(Plan({}, 0), "", comm, call());
  });
}

}  // namespace
}  // namespace tnt
