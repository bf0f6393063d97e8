// What a device model has on each device, and what each of its slots has there.

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
  std::unique_ptr<Device> device;  // After the weights, which it reads.

  // Since it was loaded.
  std::atomic<uint64_t> lookup_ns = 0;
  std::atomic<uint64_t> dense_ns = 0;
  std::atomic<uint64_t> batches = 0;
  std::atomic<uint64_t> rows = 0;
  std::atomic<uint64_t> copied_bytes = 0;
  std::atomic<uint64_t> memory_bytes = 0;  // Held now.
};

// Memory of one device or of the host that grows with the batches of one slot.
class GrowingMemory {
 public:
  // REQUIRES: nothing uses the memory.
  template <class Allocate>
  Status Reserve(size_t bytes, const Allocate& allocate) {
    if (memory_ != nullptr && memory_->size_bytes() >= bytes) return {};
    memory_.reset();
    // A quarter more, so that a slowly growing batch does not allocate each time.
    ASSIGN_OR_RETURN(memory_, allocate(RoundUp(bytes + bytes / 4, kMatrixAlignment)));
    return {};
  }
  std::byte* data() const { return memory_ == nullptr ? nullptr : memory_->data(); }
  size_t size_bytes() const { return memory_ == nullptr ? 0 : memory_->size_bytes(); }

 private:
  std::unique_ptr<DeviceMemory> memory_;
};

// What one slot has on one device.
struct DeviceLane {
  std::unique_ptr<DeviceStream> stream;
  std::unique_ptr<DeviceEvent> begun;
  std::unique_ptr<DeviceEvent> looked_up;
  std::unique_ptr<DeviceEvent> placed;    // Of the home only: the program's inputs are complete.
  std::unique_ptr<DeviceEvent> finished;  // Of the home only: the outputs are on the host.
  bool in_use = false;                    // By the batch.
  GrowingMemory section;                  // Of the batch's block.
  GrowingMemory results;                  // Of lookups and, on the home, of everything after them.
};

// What one slot has. A batch runs in it from Run() to Synchronize().
struct Lane {
  Lane(const DeviceLayout& layout, const Schema& schema) : block(layout, schema) {}

  std::vector<DeviceLane> devices;
  BatchBlock block;
  GrowingMemory pinned;   // The block.
  GrowingMemory outputs;  // Pinned; the program's outputs, one after another.

  // Of the batch. Their memory is kept.
  std::vector<DeviceMatrix> matrices;  // Targets of ColumnCopy, at home.
  std::vector<DeviceMatrix> staged;    // By call: its result where it was computed.
  std::vector<DeviceMatrix> arrived;   // By call: its result at home.
  DeviceMatrix device_outputs;         // At home.
  std::vector<SequenceInput> sequences;
  std::vector<MemoryRange> reads;
  std::vector<MemoryRange> writes;
};

// Places matrices one after another.
class MatrixPlacer {
 public:
  size_t bytes() const { return end_; }

  // Where it begins.
  size_t Add(const DeviceMatrix& matrix) {
    const size_t begin = end_;
    end_ = RoundUp(begin + matrix.size_bytes(), kMatrixAlignment);
    return begin;
  }

 private:
  size_t end_ = 0;
};

}  // namespace embershard
