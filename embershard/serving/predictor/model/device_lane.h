// State of a device model on each device, and of each of its slots there.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/divide_up.h"
#include "base/status.h"
#include "dense/dense_program.h"
#include "device/device.h"
#include "device/device_layout.h"
#include "model/batch_block.h"
#include "package/manifest.h"

namespace embershard {

inline constexpr size_t kMatrixAlignment = 256;

struct LoadedDevice {
  std::string name;
  std::unique_ptr<DeviceMemory> weights;
  std::unique_ptr<Device> device;  // Destroyed before the weights, which it reads.

  std::atomic<uint64_t> lookup_ns = 0;
  std::atomic<uint64_t> dense_ns = 0;
  std::atomic<uint64_t> batches = 0;
  std::atomic<uint64_t> rows = 0;
  std::atomic<uint64_t> copied_bytes = 0;
  std::atomic<uint64_t> memory_bytes = 0;  // Memory in use now.
};

// Memory of one device or of the host, for one slot.
class GrowingMemory {
 public:
  // REQUIRES: nothing uses the memory.
  template <class Allocate>
  Status Reserve(size_t bytes, const Allocate& allocate) {
    if (memory_ != nullptr && memory_->size_bytes() >= bytes) return {};
    memory_.reset();
    // Adds a quarter, so that slowly growing batches do not allocate each time.
    ASSIGN_OR_RETURN(memory_, allocate(RoundUp(bytes + bytes / 4, kMatrixAlignment)));
    return {};
  }
  std::byte* data() const { return memory_ == nullptr ? nullptr : memory_->data(); }
  size_t size_bytes() const { return memory_ == nullptr ? 0 : memory_->size_bytes(); }

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

struct DeviceLane {
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<DeviceEvent> begun;
  std::unique_ptr<DeviceEvent> looked_up;
  std::unique_ptr<DeviceEvent> placed;    // Only on the home: the program's inputs are complete.
  std::unique_ptr<DeviceEvent> finished;  // Only on the home: the outputs are on the host.
  bool in_use = false;                    // True if the batch uses this device.
  GrowingMemory section;                  // The device's section of the batch's block.
  GrowingMemory results;  // Results of lookups and, on the home, of all later steps.
};

// A batch uses it from Run() to Synchronize().
struct Lane {
  Lane(const DeviceLayout& layout, const Schema& schema) : block(layout, schema) {}

  std::vector<DeviceLane> devices;
  BatchBlock block;
  GrowingMemory pinned;   // Pinned memory of the block.
  GrowingMemory outputs;  // Pinned memory of the program's outputs, one after another.

  std::vector<DeviceMatrix> matrices;  // Targets of ColumnCopy, on the home.
  std::vector<DeviceMatrix> staged;    // Result of each call, on the device that computed it.
  std::vector<DeviceMatrix> arrived;   // Result of each call, on the home.
  DeviceMatrix device_outputs;         // The program's outputs, on the home.
  std::vector<SequenceInput> sequences;
  std::vector<MemoryRange> reads;
  std::vector<MemoryRange> writes;
};

// Assigns offsets to matrices that are stored one after another.
class MatrixPlacer {
 public:
  size_t bytes() const { return end_; }

  size_t Add(const DeviceMatrix& matrix) {
    const size_t begin = end_;
    end_ = RoundUp(begin + matrix.size_bytes(), kMatrixAlignment);
    return begin;
  }

 private:
  size_t end_ = 0;
};

}  // namespace embershard
