// Devices whose streams are threads with delays, and which check the order of all work.
//
// Each copy or launch gets a vector clock when it is enqueued: what happens before it in its
// stream, in streams that it waited for, and on the host. An access to memory that another one may
// run beside is a fault, whether or not they meet in this run. Memory is poisoned before it is
// copied to.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "device/device.h"
#include "model/device_model.h"

namespace embershard::testing {

enum class TestFault { kCopy, kLaunch, kMemory, kTime, kLost };

struct TestDeviceOptions {
  // Runs work when it is enqueued, without threads.
  bool immediate = false;

  uint32_t seed = 1;

  // Index of the wait in a batch that is ignored, in the order of calls of Wait() and
  // Synchronize(). `waits`: number of waits in a batch.
  std::optional<size_t> dropped_wait = std::nullopt;
  size_t waits = 1;

  // The operation with this index fails; 0 is the first after Arm().
  std::optional<TestFault> fault = std::nullopt;
  size_t fault_at = 0;
};

// Devices of one plan. Outlives the model that uses them.
class TestDevices {
 public:
  explicit TestDevices(const TestDeviceOptions& options);
  ~TestDevices();

  DeviceMaker maker();

  // Faults and dropped waits begin now.
  void Arm();

  // The first access that was out of order. Empty: there was none.
  std::string disorder() const;

  // Waits since Arm().
  size_t waits() const;
  // True if the fault has happened.
  bool failed() const;

  class State;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace embershard::testing
