// A communicator's device side: the transport follows TNT_DEVICE_TRANSPORT, and a rank without a device is an error on every
// rank.
#include "api/device_collectives.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "nccl/nccl_job.hpp"
#include "support/collectives.hpp"

namespace tnt {
namespace {

using testing::Array;
using testing::SimulatedDevice;

class DeviceSideTest : public testing::NcclTest {
 protected:
  DeviceSideTest() { set_device_source_for_tests(&source_); }
  ~DeviceSideTest() override { set_device_source_for_tests(nullptr); }

  static Settings settings(DeviceTransport transport, int rank) {
    Settings result;
    result.device_transport = transport;
    result.nccl_library = TNT_FAKE_NCCL;
    result.timeout = testing::default_timeout;
    result.node = rank < 2 ? "left" : "right";
    return result;
  }

  DeviceSource source_{4, "", [](int index) {
                         return std::make_shared<SimulatedDevice>(
                             index, testing::SimulationOptions{.progress = testing::Progress::thread});
                       }};
};

TEST_F(DeviceSideTest, IsCarriedByWhatTheSettingsSay) {
  for (const auto& [transport, name] : {std::pair(DeviceTransport::nccl, "nccl"), std::pair(DeviceTransport::staged, "staged"),
                                        std::pair(DeviceTransport::hierarchical, "hierarchical")}) {
    testing::run_threads(4, [transport = transport, name = name](Communicator& host) {
      const auto collectives = std::make_shared<DeviceCollectives>(
          connect_devices(host.rank(), host, settings(transport, host.rank()), testing::call()), std::nullopt);
      EXPECT_STREQ(collectives->comm().transport(), name);
      auto& device = dynamic_cast<SimulatedDevice&>(collectives->device());
      const Stream caller(device);
      const auto in = testing::inputs(4, TNT_FLOAT32, 9, 1);
      const testing::OnDevice data(device, caller.get(), in[testing::at(host.rank())]);
      const auto sum = [&](DeviceCommunicator& comm) { all_reduce(comm, data.get(), data.get(), 9, TNT_FLOAT32, TNT_SUM, ""); };
      EXPECT_EQ(collectives->enqueue(Lane::collectives, caller.get(), false, sum), nullptr);
      EXPECT_EQ(data.read(), testing::reduced(in, TNT_SUM));
    });
  }
}

// Two ranks with one GPU, or with slices of it: NCCL would refuse them.
TEST_F(DeviceSideTest, RanksThatShareAGpuGoThroughTheHost) {
  std::atomic<int> warnings = 0;
  set_log_sink([&](LogLevel level, int /*rank*/, const std::string& text) {
    if (level == LogLevel::warning && text.find("ranks 1 and 2 use the same GPU (1), and NCCL connects one rank") == 0)
      ++warnings;
  });
  source_.open = [](int index) {  // the bus id is the device's number
    return std::make_shared<SimulatedDevice>(std::array{0, 1, 1, 2}.at(static_cast<std::size_t>(index)),
                                             testing::SimulationOptions{.progress = testing::Progress::thread});
  };
  for (const auto transport : {DeviceTransport::nccl, DeviceTransport::hierarchical}) {
    testing::run_threads(4, [transport](Communicator& host) {
      const auto collectives = std::make_shared<DeviceCollectives>(
          connect_devices(host.rank(), host, settings(transport, host.rank()), testing::call()), std::nullopt);
      EXPECT_STREQ(collectives->comm().transport(), "staged");
      auto& device = dynamic_cast<SimulatedDevice&>(collectives->device());
      const Stream caller(device);
      const auto in = testing::inputs(4, TNT_FLOAT32, 9, 1);
      const testing::OnDevice data(device, caller.get(), in[testing::at(host.rank())]);
      const auto sum = [&](DeviceCommunicator& comm) { all_reduce(comm, data.get(), data.get(), 9, TNT_FLOAT32, TNT_SUM, ""); };
      (void)collectives->enqueue(Lane::collectives, caller.get(), false, sum);
      EXPECT_EQ(data.read(), testing::reduced(in, TNT_SUM));
    });
  }
  set_log_sink({});
  EXPECT_EQ(warnings, 1);  // of all these ranks in one process
}

// A call that is refused in a capture leaves the capture and the communicator unchanged.
TEST_F(DeviceSideTest, OnlyNcclIsCaptured) {
  for (const auto transport : {DeviceTransport::nccl, DeviceTransport::staged, DeviceTransport::hierarchical}) {
    testing::run_threads(4, [transport](Communicator& host) {
      const auto collectives = std::make_shared<DeviceCollectives>(
          connect_devices(host.rank(), host, settings(transport, host.rank()), testing::call()), std::nullopt);
      auto& device = dynamic_cast<SimulatedDevice&>(collectives->device());
      const Stream caller(device);
      const testing::OnDevice data(device, caller.get(), testing::repeated(TNT_FLOAT32, 4, [](auto) { return 1.0; }));
      const auto sum = [&](DeviceCommunicator& comm) { all_reduce(comm, data.get(), data.get(), 4, TNT_FLOAT32, TNT_SUM, ""); };
      device.synchronize(caller.get());
      device.begin_capture(caller.get());
      try {
        (void)collectives->enqueue(Lane::collectives, caller.get(), false, sum);
        EXPECT_EQ(transport, DeviceTransport::nccl);
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), TNT_UNSUPPORTED) << error.what();
        EXPECT_NE(transport, DeviceTransport::nccl);
      }
      (void)device.end_capture(caller.get());
      (void)collectives->enqueue(Lane::collectives, caller.get(), false, sum);
      EXPECT_EQ(data.read().get(3), 4.0);
    });
  }
}

// As in NCCL, a send does not end before its receive has begun, and a communicator runs one operation after another.
TEST_F(DeviceSideTest, TwoRanksMaySendToEachOtherFirst) {
  testing::run_threads(2, [](Communicator& host) {
    const auto connect = [&] {
      return connect_devices(host.rank(), host, settings(DeviceTransport::nccl, host.rank()), testing::call());
    };
    auto upward = connect();
    const auto collectives = std::make_shared<DeviceCollectives>(connect(), std::move(upward));
    auto& device = dynamic_cast<SimulatedDevice&>(collectives->device());
    const Stream caller(device);
    const int self = host.rank();
    const int peer = 1 - self;
    const auto in = testing::inputs(2, TNT_FLOAT32, 9, 1);
    const testing::OnDevice own(device, caller.get(), in[testing::at(self)]);
    const testing::OnDevice received(device, caller.get(), Array(TNT_FLOAT32, 9));
    const auto send = [&](DeviceCommunicator& comm) { tnt::send(comm, own.get(), 9, TNT_FLOAT32, peer, ""); };
    const auto receive = [&](DeviceCommunicator& comm) { recv(comm, received.get(), 9, TNT_FLOAT32, peer, ""); };
    const auto sent = collectives->enqueue(lane_of(self, peer), caller.get(), true, send);
    (void)collectives->enqueue(lane_of(peer, self), caller.get(), false, receive);
    EXPECT_EQ(received.read(), in[testing::at(peer)]);
    EXPECT_TRUE(sent->wait(testing::default_timeout));
    EXPECT_NO_THROW(collectives->check());
  });
}

// A group of calls: on two communicators, which the ranks take in different orders, messages between all ranks and a collective
// on two streams of the caller.
TEST_F(DeviceSideTest, OperationsTogetherDoNotWaitForEachOther) {
  constexpr int ranks = 3;
  testing::run_threads(ranks, [](Communicator& host) {
    const auto connect = [&] {
      return connect_devices(host.rank(), host, settings(DeviceTransport::nccl, host.rank()), testing::call());
    };
    const auto make = [&] {
      auto upward = connect();
      return std::make_shared<DeviceCollectives>(connect(), std::move(upward));
    };
    const std::shared_ptr<DeviceCollectives> both[] = {make(), make()};
    auto& device = dynamic_cast<SimulatedDevice&>(both[0]->device());
    const Stream first(device);
    const Stream second(device);
    const int self = host.rank();
    const auto in = testing::inputs(ranks, TNT_FLOAT32, 9, 1);
    std::deque<testing::OnDevice> sums;
    std::deque<testing::OnDevice> received;
    std::deque<std::vector<Message>> messages;
    const testing::OnDevice own(device, first.get(), in[testing::at(self)]);
    std::vector<LaneOperations> operations;
    for (const auto& each : both) {
      const testing::OnDevice& sum = sums.emplace_back(device, second.get(), Array(TNT_FLOAT32, 9));
      const std::vector<StreamHandle> streams{first.get(), second.get()};
      operations.push_back({each.get(), Lane::collectives, streams, [&](DeviceCommunicator& comm) {
                              all_reduce(comm, own.get(), sum.get(), 9, TNT_FLOAT32, TNT_SUM, "");
                            }});
      std::vector<Message>& upward = messages.emplace_back();
      std::vector<Message>& downward = messages.emplace_back();
      for (int peer = 0; peer < ranks; ++peer) {
        const testing::OnDevice& buffer = received.emplace_back(device, second.get(), Array(TNT_FLOAT32, 9));
        if (peer == self) continue;
        (self < peer ? upward : downward).push_back({.in = own.get(), .count = 9, .dtype = TNT_FLOAT32, .peer = peer});
        (peer < self ? upward : downward).push_back({.out = buffer.get(), .count = 9, .dtype = TNT_FLOAT32, .peer = peer});
      }
      operations.push_back({each.get(), Lane::upward, streams, [&](DeviceCommunicator& comm) { comm.exchange(upward, ""); }});
      operations.push_back(
          {each.get(), Lane::collectives, streams, [&](DeviceCommunicator& comm) { comm.exchange(downward, ""); }});
    }
    if (self == 1) std::rotate(operations.begin(), operations.begin() + 3, operations.end());
    DeviceCollectives::enqueue_together(operations);
    for (const testing::OnDevice& sum : sums) EXPECT_EQ(sum.read(), testing::reduced(in, TNT_SUM));
    for (std::size_t i = 0; i < received.size(); ++i) {
      const int peer = static_cast<int>(i) % ranks;
      EXPECT_EQ(received[i].read(), peer == self ? Array(TNT_FLOAT32, 9) : in[testing::at(peer)]) << "from rank " << peer;
    }
    for (const auto& each : both) EXPECT_NO_THROW(each->check());
  });
}

// Nothing is enqueued if a stream does not fit; what comes before an operation that is refused is done.
TEST_F(DeviceSideTest, OperationsTogetherAreCheckedFirst) {
  testing::run_threads(1, [](Communicator& host) {
    const auto collectives = std::make_shared<DeviceCollectives>(
        connect_devices(0, host, settings(DeviceTransport::nccl, 0), testing::call()), std::nullopt);
    auto& device = dynamic_cast<SimulatedDevice&>(collectives->device());
    SimulatedDevice other(1);
    const Stream stream(device);
    const Stream foreign(other);
    const testing::OnDevice in(device, stream.get(), testing::repeated(TNT_FLOAT32, 4, [](auto) { return 3.0; }));
    const testing::OnDevice out(device, stream.get(), Array(TNT_FLOAT32, 4));
    const auto copy = [&](DeviceCommunicator& comm) { all_reduce(comm, in.get(), out.get(), 4, TNT_FLOAT32, TNT_SUM, ""); };
    const auto refused = [&](DeviceCommunicator& comm) { send(comm, in.get(), 4, TNT_FLOAT32, 7, ""); };
    const auto together = [&](StreamHandle second) {
      const LaneOperations all[] = {{collectives.get(), Lane::collectives, {stream.get()}, copy},
                                    {collectives.get(), Lane::collectives, {second}, refused}};
      DeviceCollectives::enqueue_together(all);
    };
    EXPECT_THROW(together(foreign.get()), Error);
    EXPECT_EQ(out.read().get(0), 0.0);
    EXPECT_THROW(together(stream.get()), Error);
    EXPECT_EQ(out.read().get(0), 3.0);
  });
}

TEST_F(DeviceSideTest, ARankWithoutADeviceIsNamed) {
  for (const auto transport : {DeviceTransport::nccl, DeviceTransport::staged, DeviceTransport::hierarchical}) {
    const std::string message = testing::common_error(4, TNT_INVALID_ARGUMENT, [transport](Communicator& host) {
      (void)connect_devices(host.rank() == 2 ? 9 : host.rank(), host, settings(transport, host.rank()), testing::call());
    });
    EXPECT_EQ(message, "rank 2: there is no device 9: this process has 4, counted from 0");
  }
}

}  // namespace
}  // namespace tnt
