// The models' gradient lists: their sums are the published parameter counts, their shapes those of the architectures.
#include "benchmarks/models.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "support.hpp"

namespace tnt::bench {
namespace {

struct Expected {
  const char* name;
  std::size_t tensors;
  std::size_t parameters;  // exact
  double millions;         // as published
  double tolerance;        // relative: rounding, and what the paper does not specify
};

// ResNet-50: Keras' own count of trainable parameters. Transformer big: the paper rounds its vocabulary ("about 37000") and so
// its 213 M. BERT-large: 335,141,888 without a task's heads; the paper rounds to 340 M.
class ModelsTest : public ::testing::TestWithParam<Expected> {};

TEST_P(ModelsTest, SumIsThePublishedCount) {
  const Expected& expected = GetParam();
  const Model& model = find_model(expected.name);
  EXPECT_EQ(model.name, expected.name);
  EXPECT_EQ(model.tensors.size(), expected.tensors);
  std::size_t sum = 0;
  for (const ModelTensor& tensor : model.tensors) sum += tensor.count;
  EXPECT_EQ(sum, expected.parameters);
  EXPECT_EQ(model.parameters, expected.parameters);
  EXPECT_DOUBLE_EQ(model.published_millions, expected.millions);
  EXPECT_NEAR(static_cast<double>(sum) / 1e6, expected.millions, expected.tolerance * expected.millions);
  EXPECT_FALSE(model.source.empty());
  EXPECT_NE(model.published.find(" M ("), std::string::npos);
}

TEST_P(ModelsTest, TensorsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const ModelTensor& tensor : find_model(GetParam().name).tensors) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    EXPECT_GT(tensor.count, 0U) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelsTest,
                         ::testing::Values(Expected{"resnet50", 214, 25'583'592, 25.6, 0.001},
                                           Expected{"transformer_big", 181, 214'171'648, 213, 0.01},
                                           Expected{"bert_large", 391, 335'141'888, 340, 0.015}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Models, AreInTheOrderOfTheLayers) {
  const auto& tensors = find_model("resnet50").tensors;
  EXPECT_EQ(tensors.front().name, "conv1_conv/kernel");
  EXPECT_EQ(tensors.front().shape, (std::vector<std::size_t>{7, 7, 3, 64}));
  EXPECT_EQ(tensors.back().name, "predictions/bias");
  EXPECT_EQ(find_model("bert_large").tensors.front().shape, (std::vector<std::size_t>{30522, 1024}));
  EXPECT_EQ(find_model("transformer_big").tensors.front().shape, (std::vector<std::size_t>{37000, 1024}));
}

TEST(Models, UnknownNameListsTheKnown) {
  const std::string text = testing::refusal([] { (void)find_model("vgg"); });
  EXPECT_EQ(text, "--model vgg: no such model; there are resnet50, transformer_big, bert_large");
  EXPECT_EQ(&find_model("resnet50"), &find_model("resnet50"));
}

}  // namespace
}  // namespace tnt::bench
