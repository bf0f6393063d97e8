// The interface of a device with memory of its own, such as a GPU.
//
// Implementations: torch_device.cc (CUDA, and torch on the CPU) and the test device of the tests,
// whose streams are threads. Nothing here includes torch, so that the order of operations can be
// tested under ThreadSanitizer.

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

// Memory of a device, or pinned memory of the host, which devices copy from and to.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
  virtual size_t size_bytes() const = 0;
};

// A point in the work of a stream.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;

  // Nanoseconds from an earlier event of the same stream. REQUIRES: the stream has reached both.
  virtual Result<uint64_t> NanosecondsSince(const DeviceEvent& earlier) const = 0;
};

struct MemoryRange {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
};

// A row-major matrix in a device's memory.
struct DeviceMatrix {
  std::byte* values = nullptr;
  size_t rows = 0;
  size_t columns = 0;
  bool half = false;  // float16; else float32.

  size_t size_bytes() const { return rows * columns * (half ? 2 : 4); }
  MemoryRange range() const { return {values, size_bytes()}; }
};

// The lists of one LookupCall, in the memory of its device.
struct CallLists {
  size_t bags = 0;
  size_t ids = 0;
  const int32_t* rows = nullptr;     // [ids]
  const int32_t* offsets = nullptr;  // [tables * bags + 1]
  const float* weights = nullptr;    // [ids], or null: unweighted.
};

// The computations of a device. They run inside DeviceStream::Launch(), and throw what their
// library throws.
class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Looks up the rows of a call and copies columns of the result: for each of `copies` from
  // result columns to columns of targets[copy.target]. A result has a row for each bag, or for
  // each id if call.mode is LookupMode::kEach, and call.columns columns.
  virtual void Lookup(const LookupCall& call, const CallLists& lists,
                      std::span<const ColumnCopy> copies,
                      std::span<const DeviceMatrix> targets) = 0;

  // Copies columns of `from` to columns of `to`, or adds them.
  virtual void Place(const DeviceMatrix& from, const ColumnCopy& copy, const DeviceMatrix& to) = 0;

  // Runs the dense program on inputs in the device's memory. Writes the outputs one after another,
  // as float32.
  virtual void RunProgram(const DenseProgramInputs& inputs, float* outputs) = 0;
};

// Work in order. Calls enqueue and return, except Synchronize(). Memory that queued work uses must
// outlive it. One thread at a time.
//
// kResourceExhausted: the device has too little memory now. kUnavailable with
// StatusReason::kDeviceLost: it will not work again in this process.
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  virtual Status CopyIn(std::byte* device, const std::byte* pinned, size_t bytes) = 0;
  virtual Status CopyOut(std::byte* pinned, const std::byte* device, size_t bytes) = 0;

  // From the memory of another stream's device to that of this stream's. The other stream may do
  // the copy.
  virtual Status CopyAcross(std::byte* to, DeviceStream* other, const std::byte* from,
                            size_t bytes) = 0;

  // Runs `work`, which uses DeviceKernels of this stream's device. `reads` and `writes` are all the
  // memory of slots that it uses; the test device checks them.
  virtual Status Launch(std::span<const MemoryRange> reads, std::span<const MemoryRange> writes,
                        std::function<void(DeviceKernels&)> work) = 0;

  virtual Status Record(DeviceEvent* event) = 0;

  // Later work of this stream begins after the event, which a stream of any device recorded.
  virtual Status Wait(DeviceEvent* event) = 0;

  // Returns when all work has ended.
  virtual Status Synchronize() = 0;
};

// Thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  // kResourceExhausted: there is too little memory.
  virtual Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) = 0;
  virtual Result<std::unique_ptr<DeviceMemory>> AllocatePinned(size_t bytes) = 0;
  virtual Result<std::unique_ptr<DeviceStream>> MakeStream() = 0;
  virtual Result<std::unique_ptr<DeviceEvent>> MakeEvent() = 0;

  // Loads what DeviceKernels compute with: the packed rows of the device, and the dense program.
  // `weights` outlives the device.
  virtual Status Load(const std::byte* weights, size_t bytes, ProgramBytes program,
                      const Schema& schema) = 0;

  virtual uint64_t memory_bytes_free() const = 0;
};

}  // namespace embershard
