// The order of a device model's work, on devices that check it.

#include "model/device_model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/device_fixture.h"
#include "device/test_device.h"

namespace embershard {
namespace {

using testing::CopyInputs;
using testing::CutShards;
using testing::DeviceNames;
using testing::EveryKindOfLookup;
using testing::FillSlot;
using testing::ScratchFolder;
using testing::TestDeviceOptions;
using testing::TestDevices;
using testing::TestFault;

std::shared_ptr<const Package> OpenCut(size_t devices, const std::filesystem::path& folder) {
  auto builder = EveryKindOfLookup();
  builder.AddDense("age", Scope::kRequest);
  builder.AddDense("price", Scope::kExample);
  builder.AddOutput("of request", Scope::kRequest, {3});
  builder.AddPlanOfShards("cut", DeviceNames("cuda", devices), CutShards(devices));
  builder.Write(folder);
  auto package = Package::Open(folder, {});
  EXPECT_TRUE(package.ok()) << package.status().message();
  return std::move(*package);
}

std::unique_ptr<Model> MakeModel(const std::shared_ptr<const Package>& package,
                                 TestDevices* devices, size_t slots) {
  auto model = MakeDeviceModel(package, devices->maker(), {.slots = slots});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(*model);
}

bool SameBits(const Slot& left, const Slot& right) {
  for (size_t i = 0; i < left.outputs.size(); ++i) {
    const std::vector<float>& a = left.outputs[i];
    const std::vector<float>& b = right.outputs[i];
    if (a.size() != b.size() || std::memcmp(a.data(), b.data(), 4 * a.size()) != 0) return false;
  }
  return left.outputs.size() == right.outputs.size();
}

TEST(DeviceModel, EveryHomeGivesTheSameBits) {
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(3, folder.path());
  TestDevices plain({.immediate = true});
  const std::unique_ptr<Model> model = MakeModel(package, &plain, 1);
  std::mt19937 random(2);
  for (int batch = 0; batch < 20; ++batch) {
    Slot first;
    FillSlot(package->schema(), 7, &random, &first);
    ASSERT_TRUE(model->Run(first).ok());
    for (int home = 1; home < 3; ++home) {  // It rotates.
      Slot other;
      CopyInputs(first, &other);
      ASSERT_TRUE(model->Run(other).ok());
      ASSERT_TRUE(SameBits(first, other)) << first.outputs[0][0] << " " << other.outputs[0][0];
    }
  }
}

// 20,000 batches in all, over the parameters.
constexpr size_t kBatches = 20000 / (3 * 3);

class DeviceModelOrder : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {};

TEST_P(DeviceModelOrder, ThreadsGiveWhatAPlainRunGives) {
  const auto [devices, slots] = GetParam();
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(devices, folder.path());
  TestDevices threaded({.seed = static_cast<uint32_t>(devices * 10 + slots)});
  const std::unique_ptr<Model> model = MakeModel(package, &threaded, slots);
  std::atomic<size_t> different = 0;
  std::vector<std::thread> workers;
  for (size_t number = 0; number < slots; ++number) {
    workers.emplace_back([&, number] {
      TestDevices plain({.immediate = true});
      const std::unique_ptr<Model> expected = MakeModel(package, &plain, 1);
      std::mt19937 random(static_cast<uint32_t>(number));
      Slot slot(number);
      Slot other(0);
      for (size_t batch = 0; batch < kBatches / slots; ++batch) {
        FillSlot(package->schema(), 7, &random, &slot);
        CopyInputs(slot, &other);
        if (!model->Run(slot).ok() || !expected->Run(other).ok() || !SameBits(slot, other)) {
          ++different;
        }
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(different, 0U);
  EXPECT_EQ(threaded.disorder(), "");
}

INSTANTIATE_TEST_SUITE_P(DevicesAndSlots, DeviceModelOrder,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(1, 2, 4)));

TEST(DeviceModel, EachWaitIsNeeded) {
  constexpr size_t kDevices = 4;
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(kDevices, folder.path());
  for (size_t dropped = 0; dropped < kDevices; ++dropped) {
    // The home waits for each other device, and the host for the home.
    TestDevices devices({.immediate = true, .dropped_wait = dropped, .waits = kDevices});
    TestDevices sound({.immediate = true});
    const std::unique_ptr<Model> model = MakeModel(package, &devices, 1);
    const std::unique_ptr<Model> expected = MakeModel(package, &sound, 1);
    devices.Arm();
    std::mt19937 random(3);
    Slot slot;
    Slot other;
    bool caught = false;
    size_t batches = 0;
    while (!caught && batches++ < 8) {
      FillSlot(package->schema(), 7, &random, &slot);
      CopyInputs(slot, &other);
      ASSERT_TRUE(model->Run(slot).ok() && expected->Run(other).ok());
      caught = !SameBits(slot, other) || devices.disorder() != "";
    }
    EXPECT_EQ(devices.waits(), batches * kDevices);
    EXPECT_TRUE(caught) << "wait " << dropped;
  }
}

// Every operation of a batch fails once: the batch is refused, and the next ones are answered.
TEST(DeviceModel, AFailureEndsItsBatchOnly) {
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(2, folder.path());
  TestDevices plain({.immediate = true});
  constexpr size_t kOperationsMax = 1000;
  for (const TestFault fault : {TestFault::kCopy, TestFault::kLaunch, TestFault::kMemory}) {
    size_t met = 0;
    for (size_t at = 0; at < kOperationsMax; ++at) {
      TestDevices devices({.fault = fault, .fault_at = at});
      const std::unique_ptr<Model> model = MakeModel(package, &devices, 1);
      const std::unique_ptr<Model> expected = MakeModel(package, &plain, 1);
      devices.Arm();
      std::mt19937 random(4);
      Slot slot;
      Slot other;
      size_t refused = 0;
      for (int batch = 0; batch < 2; ++batch) {
        FillSlot(package->schema(), 7, &random, &slot);
        CopyInputs(slot, &other);
        const Status status = model->Run(slot);
        ASSERT_TRUE(expected->Run(other).ok());
        if (status.ok()) {
          ASSERT_TRUE(SameBits(slot, other));
        } else {
          ++refused;
        }
      }
      EXPECT_EQ(devices.disorder(), "");
      EXPECT_EQ(refused, devices.failed() ? 1U : 0U);
      if (!devices.failed()) break;
      ++met;
    }
    EXPECT_GT(met, 1U);
    EXPECT_LT(met, kOperationsMax);
  }
}

TEST(DeviceModel, ALostDeviceRefusesEveryLaterBatch) {
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(2, folder.path());
  TestDevices devices({.fault = TestFault::kLost, .fault_at = 5});
  const std::unique_ptr<Model> model = MakeModel(package, &devices, 2);
  devices.Arm();
  std::mt19937 random(5);
  for (size_t number : {0, 1, 0}) {
    Slot slot(number);
    FillSlot(package->schema(), 7, &random, &slot);
    const Status status = model->Run(slot);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.reason(), StatusReason::kDeviceLost);
  }
}

uint64_t Times(const Model& model) {
  uint64_t nanoseconds = 0;
  for (const DeviceLoad& load : model.device_loads()) nanoseconds += load.lookup_ns + load.dense_ns;
  return nanoseconds;
}

TEST(DeviceModel, AnUnreadableTimeIsNotCountedAndItsBatchAnswered) {
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(2, folder.path());
  TestDevices plain({.immediate = true});
  const std::unique_ptr<Model> expected = MakeModel(package, &plain, 1);
  std::mt19937 random(6);
  // Times are read for the lookups of two devices and for the dense program.
  for (size_t time = 0; time < 3; ++time) {
    TestDevices devices({.fault = TestFault::kTime, .fault_at = time});
    const std::unique_ptr<Model> model = MakeModel(package, &devices, 1);
    devices.Arm();
    Slot slot;
    Slot other;
    FillSlot(package->schema(), 7, &random, &slot);
    CopyInputs(slot, &other);
    ASSERT_TRUE(expected->Run(other).ok());
    const Status status = model->Run(slot);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_TRUE(devices.failed());
    EXPECT_TRUE(SameBits(slot, other));
    EXPECT_EQ(Times(*model), 2000U);  // Two times of 1000 ns.
  }
}

TEST(DeviceModel, ADeviceLostAfterABatchRefusesTheNext) {
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(2, folder.path());
  size_t answered = 0;
  for (size_t at = 0;; ++at) {
    TestDevices devices({.fault = TestFault::kLost, .fault_at = at});
    const std::unique_ptr<Model> model = MakeModel(package, &devices, 1);
    devices.Arm();
    std::mt19937 random(7);
    Slot slot;
    FillSlot(package->schema(), 7, &random, &slot);
    const Status first = model->Run(slot);
    if (!devices.failed()) break;
    if (first.ok()) ++answered;
    EXPECT_EQ(model->Run(slot).reason(), StatusReason::kDeviceLost) << at;
  }
  EXPECT_EQ(answered, 3U);  // The device was lost while one of three times was read.
}

TEST(DeviceModel, TooLittleMemoryNamesDeviceAndLargestTables) {
  const ScratchFolder folder;
  const std::shared_ptr<const Package> package = OpenCut(2, folder.path());
  TestDevices devices({.fault = TestFault::kMemory});
  devices.Arm();
  const auto model = MakeDeviceModel(package, devices.maker(), {});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().reason(), StatusReason::kOtherDevices);
  EXPECT_NE(model.status().message().find("plans/cut.json: device cuda:0: expected "),
            std::string::npos)
      << model.status().message();
  EXPECT_NE(model.status().message().find("largest: '"), std::string::npos);
}

}  // namespace
}  // namespace embershard
