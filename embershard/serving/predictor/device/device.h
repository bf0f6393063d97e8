// The interface of a device with its own memory, such as a GPU.
//
// torch_device.cc implements it for CUDA and for torch on the CPU, a test device with threads as
// streams. Does not include torch, so that ThreadSanitizer can check the order of operations.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "dense/dense_program.h"
#include "device/device_layout.h"

namespace embershard {

// Memory of a device, or pinned host memory for copies to and from devices.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size_bytes() const = 0;
};

// A point in the queued work of a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;

  // REQUIRES: the stream has reached both events, and `earlier` is of the same stream.
  virtual Result<uint64_t> NanosecondsSince(const DeviceEvent& earlier) const = 0;
};

struct MemoryRange {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
};

struct DeviceMatrix {
  std::byte* values = nullptr;
  size_t rows = 0;
  size_t columns = 0;
  bool half = false;  // float16 if set, else float32.

  size_t size_bytes() const { return rows * columns * (half ? 2 : 4); }
  MemoryRange range() const { return {values, size_bytes()}; }
};

// The id lists of one LookupCall, in the memory of its device.
struct CallLists {
  size_t bags = 0;
  size_t ids = 0;
  const int32_t* rows = nullptr;     // [ids]
  const int32_t* offsets = nullptr;  // [tables * bags + 1]
  const float* weights = nullptr;    // [ids], or null if unweighted.
};

// They run inside DeviceStream::Launch(), and may throw the exceptions of their library.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Looks up the rows of a call. Each of `copies` then copies columns of the result to columns of
  // targets[copy.target]. The result is [bags, call.columns], or [ids, call.columns] if unpooled.
  virtual void Lookup(const LookupCall& call, const CallLists& lists,
                      std::span<const ColumnCopy> copies,
                      std::span<const DeviceMatrix> targets) = 0;

  // Copies columns of `from` to columns of `to`, or adds them if copy.add is set.
  virtual void Place(const DeviceMatrix& from, const ColumnCopy& copy, const DeviceMatrix& to) = 0;

  // Inputs and outputs are in the device's memory. Writes the outputs one after another as float32.
  virtual void RunProgram(const DenseProgramInputs& inputs, float* outputs) = 0;
};

// A queue of work that a device does in order. Every call except Synchronize() only enqueues.
// Memory that queued work uses must outlive that work. Not thread-safe.
//
// Calls fail with kResourceExhausted if the device has too little memory now. They fail with
// kUnavailable and StatusReason::kDeviceLost if it cannot be used again in this process.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  virtual Status CopyIn(std::byte* device, const std::byte* pinned, size_t bytes) = 0;
  virtual Status CopyOut(std::byte* pinned, const std::byte* device, size_t bytes) = 0;

  // Copies from the memory of `other`'s device. Either stream may do the copy.
  virtual Status CopyAcross(std::byte* to, DeviceStream* other, const std::byte* from,
                            size_t bytes) = 0;

  // Runs `work` with the DeviceKernels of the device. `reads` and `writes` must list all memory of
  // slots that `work` uses: the test device reports listed accesses that events do not order, but
  // cannot notice a missing one.
  virtual Status Launch(std::span<const MemoryRange> reads, std::span<const MemoryRange> writes,
                        std::function<void(DeviceKernels&)> work) = 0;

  virtual Status Record(DeviceEvent* event) = 0;

  // Makes later work wait for the event, which a stream of any device may have recorded.
  virtual Status Wait(DeviceEvent* event) = 0;

  virtual Status Synchronize() = 0;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  // kResourceExhausted if there is too little memory.
  virtual Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) = 0;
  virtual Result<std::unique_ptr<DeviceMemory>> AllocatePinned(size_t bytes) = 0;
  virtual Result<std::unique_ptr<DeviceStream>> MakeStream() = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> MakeEvent() = 0;

  // Prepares the DeviceKernels. `weights` are the packed rows, which must outlive the device.
  virtual Status Load(const std::byte* weights, size_t bytes, ProgramBytes program,
                      const Schema& schema) = 0;

  virtual uint64_t memory_bytes_free() const = 0;
};

}  // namespace embershard
