// The ops of a bucket on both devices, between a TensorFlow and a reducer that only record their calls.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fake_tensorflow.hpp"
#include "python/extension/tensorflow/attachments.hpp"

using fake_tensorflow::Buffer;
using fake_tensorflow::Node;

namespace {

struct Called {
  std::string what;
  std::size_t which;  // tensor or bucket
  const void* gradient;
  void* out;
  double scale;
  tnt_stream_t stream;
};
std::vector<Called> called;
tnt_status_t answer = TNT_SUCCESS;

}  // namespace

extern "C" {
tnt_status_t tnt_reducer_ready_many(tnt_reducer_t, const std::size_t* tensors, const void* const* gradients, void* const* outs,
                                    const double* scales, std::size_t n, tnt_stream_t stream) {
  for (std::size_t i = 0; i < n; ++i) called.push_back({"ready", tensors[i], gradients[i], outs[i], scales[i], stream});
  return answer;
}
tnt_status_t tnt_reducer_wait_bucket(tnt_reducer_t, std::size_t bucket, tnt_stream_t stream) {
  called.push_back({"wait", bucket, nullptr, nullptr, 0.0, stream});
  return answer;
}
// Of messages, which attachments keep; no test has any.
tnt_status_t tnt_work_wait(tnt_work_t, double) { return answer; }
tnt_status_t tnt_work_destroy(tnt_work_t) { return TNT_SUCCESS; }
const char* tnt_status_name(tnt_status_t) { return "TNT_ABORTED"; }
const char* tnt_last_error(void) { return "rank 1: enough"; }
}

namespace {

const void* asked_context = nullptr;
int stream_of_tests = 0;
void* tell_stream(void* context) {
  asked_context = context;
  return &stream_of_tests;
}
void* tell_nothing(void*) { return nullptr; }

std::shared_ptr<Buffer> buffer(std::vector<double> values) { return std::make_shared<Buffer>(Buffer{std::move(values)}); }

class Ops : public testing::Test {
 protected:
  void SetUp() override {
    called.clear();
    answer = TNT_SUCCESS;
    asked_context = nullptr;
    tnt_tensorflow_set_stream_of(tell_stream);
  }
  void TearDown() override {
    tnt_tensorflow_detach(host_);
    tnt_tensorflow_detach(device_);
    EXPECT_EQ(fake_tensorflow::live_tensors(), 0);
  }

  std::int64_t host_ = tnt_tensorflow_attach(nullptr, 0);
  std::int64_t device_ = tnt_tensorflow_attach(nullptr, 1);
  std::vector<std::shared_ptr<Buffer>> inputs_{buffer({0.25}), buffer({1.0, 2.0}), buffer({3.0})};
};

TEST_F(Ops, AreRegisteredForBothDevices) {
  const auto& kernels = fake_tensorflow::kernels();
  ASSERT_EQ(kernels.size(), 4U);
  for (const char* op : {"TntStart", "TntFinish"}) {
    EXPECT_EQ(kernels.at(op).device, "CPU");
    EXPECT_EQ(kernels.at(op).op, op);
    EXPECT_EQ(kernels.at(op + std::string("Gpu")).device, "GPU");
    EXPECT_EQ(kernels.at(op + std::string("Gpu")).op, op);
  }
  EXPECT_EQ(kernels.at("TntStartGpu").in_host_memory, std::vector<std::string>{"scale"});
  EXPECT_TRUE(kernels.at("TntFinishGpu").in_host_memory.empty());
}

TEST_F(Ops, OnTheCpuHaveNoStream) {
  Node start("TntStart", host_, 4, {7, 9});
  EXPECT_EQ(start.run(inputs_), "");
  Node finish("TntFinish", host_, 4, {});
  EXPECT_EQ(finish.run({inputs_[1], inputs_[2]}), "");
  ASSERT_EQ(called.size(), 3U);
  for (const Called& call : called) EXPECT_EQ(call.stream, nullptr);
  EXPECT_EQ(asked_context, nullptr);
}

TEST_F(Ops, OnAGpuGoByTensorFlowsStream) {
  Node start("TntStartGpu", device_, 4, {7, 9});
  EXPECT_EQ(start.run(inputs_), "");
  EXPECT_EQ(asked_context, start.context());
  ASSERT_EQ(called.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(called[i].what, "ready");
    EXPECT_EQ(called[i].which, i == 0 ? 7U : 9U);
    EXPECT_EQ(called[i].gradient, inputs_[i + 1]->data.data());
    EXPECT_EQ(called[i].out, inputs_[i + 1]->data.data());  // in place
    EXPECT_EQ(called[i].scale, 0.25);
    EXPECT_EQ(called[i].stream, &stream_of_tests);
  }
  EXPECT_EQ(fake_tensorflow::live_tensors(), 2) << "what the reducer reads and writes has to live until Finish";

  Node finish("TntFinishGpu", device_, 4, {});
  EXPECT_EQ(finish.run({inputs_[1], inputs_[2]}), "");
  ASSERT_EQ(called.size(), 3U);
  EXPECT_EQ(called[2].what, "wait");
  EXPECT_EQ(called[2].which, 4U);
  EXPECT_EQ(called[2].stream, &stream_of_tests);
  EXPECT_EQ(fake_tensorflow::live_tensors(), 0);
  EXPECT_EQ(finish.outputs()[1], inputs_[2]);
}

TEST_F(Ops, LeaveGradientsThatSomebodyElseUsesAsTheyAre) {
  Node start("TntStart", host_, 4, {7, 9});
  start.share_inputs();
  EXPECT_EQ(start.run(inputs_), "");
  ASSERT_EQ(called.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(called[i].gradient, inputs_[i + 1]->data.data());
    EXPECT_EQ(called[i].out, start.outputs()[i]->data.data());
    EXPECT_NE(called[i].out, called[i].gradient);
  }
  EXPECT_EQ(fake_tensorflow::live_tensors(), 4) << "gradients live until Finish as well";
}

TEST_F(Ops, WithoutAStreamFailBeforeAnythingIsHandedOver) {
  for (auto* tell : {static_cast<void* (*)(void*)>(nullptr), tell_nothing}) {
    tnt_tensorflow_set_stream_of(tell);
    Node start("TntStartGpu", device_, 0, {0, 1});
    const std::string failure = start.run(inputs_);
    EXPECT_EQ(failure,
              "[tarantella TNT_UNSUPPORTED] TensorFlow does not tell on which CUDA stream it runs this step [/tarantella]");
  }
  EXPECT_TRUE(called.empty());
}

TEST_F(Ops, AreNotRunInTheWrongMemory) {
  Node on_cpu("TntStart", device_, 0, {0, 1});
  EXPECT_NE(on_cpu.run(inputs_).find("placed a bucket on the CPU whose reducer takes gradients in GPU memory"),
            std::string::npos);
  Node on_gpu("TntFinishGpu", host_, 0, {});
  EXPECT_NE(on_gpu.run(inputs_).find("placed a bucket on a GPU whose reducer takes gradients in host memory"),
            std::string::npos);
  EXPECT_TRUE(called.empty());
}

TEST_F(Ops, SayThatTheirReducerIsGone) {
  Node start("TntStartGpu", device_, 0, {0, 1});
  tnt_tensorflow_detach(device_);
  EXPECT_NE(start.run(inputs_).find("this step was made for a reducer that no longer exists"), std::string::npos);
}

TEST_F(Ops, PassOnWhatTheReducerSaysAndKeepItsTensors) {
  Node start("TntStartGpu", device_, 0, {0, 1});
  EXPECT_EQ(start.run(inputs_), "");
  answer = TNT_ABORTED;
  Node finish("TntFinishGpu", device_, 0, {});
  EXPECT_EQ(finish.run({inputs_[1], inputs_[2]}), "[tarantella TNT_ABORTED] rank 1: enough [/tarantella]");
  EXPECT_EQ(fake_tensorflow::live_tensors(), 2) << "the reducer may still write";
}

}  // namespace
