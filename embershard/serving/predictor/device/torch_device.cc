#include "device/torch_device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <charconv>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/core_count.h"
#include "dense/tensors.h"
#include "device/torch_kernels.h"

namespace embershard {
namespace {

constexpr std::string_view kCudaPrefix = "cuda:";
constexpr std::string_view kCpuPrefix = "torch-cpu:";

Status OtherDevices(const std::string& message) {
  return {StatusCode::kBadPackage, message, StatusReason::kOtherDevices};
}

template <class Work>
Status CatchErrors(const std::string& name, const Work& work) {
  try {
    work();
    return {};
  } catch (const c10::OutOfMemoryError& error) {
    return {StatusCode::kResourceExhausted, name + ": " + Reason(error),
            StatusReason::kOutOfMemory};
  } catch (const std::bad_alloc&) {
    return {StatusCode::kResourceExhausted, name + ": out of memory", StatusReason::kOutOfMemory};
  } catch (const std::exception& error) {
    const std::string reason = Reason(error);
    // Pinned memory and cuBLAS throw no special exception if memory runs out.
    if (reason.find("out of memory") != std::string::npos ||
        reason.find("ALLOC_FAILED") != std::string::npos) {
      return {StatusCode::kResourceExhausted, name + ": " + reason, StatusReason::kOutOfMemory};
    }
    const bool other_gpu = reason.find("no kernel image") != std::string::npos;
    return Internal(name, ": ", reason,
                    other_gpu ? "; FBGEMM or torch was not built for this kind of GPU" : "");
  }
}

class TensorMemory final : public DeviceMemory {
 public:
  explicit TensorMemory(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  std::byte* data() const override { return static_cast<std::byte*>(tensor_.data_ptr()); }
  size_t size_bytes() const override { return tensor_.nbytes(); }

 private:
  const at::Tensor tensor_;
};

at::Tensor BytesAt(const std::byte* bytes, size_t size, c10::Device device) {
  return at::for_blob(const_cast<std::byte*>(bytes), {static_cast<int64_t>(size)})
      .options(at::TensorOptions(at::kByte).device(device))
      .target_device(device)
      .make_tensor();
}

class CudaEvent final : public DeviceEvent {
 public:
  c10::Event& event() { return event_; }
  Result<uint64_t> NanosecondsSince(const DeviceEvent& earlier) const override {
    const auto& begin = static_cast<const CudaEvent&>(earlier).event_;
    double milliseconds = 0;
    RETURN_IF_ERROR(CatchErrors("event", [&] { milliseconds = begin.elapsedTime(event_); }));
    return static_cast<uint64_t>(milliseconds * 1e6);
  }

 private:
  c10::Event event_{c10::DeviceType::CUDA, c10::EventFlag::BACKEND_DEFAULT};  // Records the time.
};

class TorchDevice : public Device {
 public:
  TorchDevice(std::string name, c10::Device device, size_t position, const DeviceLayout& layout)
      : name_(std::move(name)), device_(device), position_(position), layout_(layout) {}

  Result<std::unique_ptr<DeviceMemory>> Allocate(size_t bytes) override {
    return AllocateWith(bytes, at::TensorOptions(at::kByte).device(device_));
  }

  Result<std::unique_ptr<DeviceMemory>> AllocatePinned(size_t bytes) override {
    return AllocateWith(bytes, at::TensorOptions(at::kByte).pinned_memory(!device_.is_cpu()));
  }

  Status Load(const std::byte* weights, size_t bytes, ProgramBytes program,
              const Schema& schema) override {
    Status status;
    RETURN_IF_ERROR(CatchErrors(name_, [&] {
      auto loaded = LoadDeviceProgram(std::move(program), schema, device_);
      status = loaded.status();
      if (loaded.ok()) {
        kernels_ =
            MakeTorchKernels(device_, position_, layout_, weights, bytes, std::move(*loaded));
      }
      // Other streams read what this stream has written.
      if (!device_.is_cpu()) {
        c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
      }
    }));
    return status;
  }

  const std::string& name() const { return name_; }
  c10::Device device() const { return device_; }
  DeviceKernels& kernels() const { return *kernels_; }

 private:
  Result<std::unique_ptr<DeviceMemory>> AllocateWith(size_t bytes, at::TensorOptions options) {
    std::unique_ptr<DeviceMemory> memory;
    RETURN_IF_ERROR(CatchErrors(name_, [&] {
      memory = std::make_unique<TensorMemory>(at::empty({static_cast<int64_t>(bytes)}, options));
    }));
    return memory;
  }

  const std::string name_;
  const c10::Device device_;
  const size_t position_;
  const DeviceLayout& layout_;
  std::unique_ptr<DeviceKernels> kernels_;
};

class CudaStream final : public DeviceStream {
 public:
  CudaStream(const TorchDevice* owner, c10::Stream stream) : owner_(owner), stream_(stream) {}

  Status CopyIn(std::byte* device, const std::byte* pinned, size_t bytes) override {
    return Copy(BytesAt(device, bytes, owner_->device()), BytesAt(pinned, bytes, at::kCPU));
  }

  Status CopyOut(std::byte* pinned, const std::byte* device, size_t bytes) override {
    return Copy(BytesAt(pinned, bytes, at::kCPU), BytesAt(device, bytes, owner_->device()));
  }

  // torch copies on the current stream of the source's device, so both streams are made current.
  Status CopyAcross(std::byte* to, DeviceStream* other, const std::byte* from,
                    size_t bytes) override {
    const c10::Stream source = static_cast<CudaStream*>(other)->stream_;
    return InStream([&] {
      const c10::MultiStreamGuard both({stream_, source});
      BytesAt(to, bytes, stream_.device())
          .copy_(BytesAt(from, bytes, source.device()), /*non_blocking=*/true);
    });
  }

  Status Launch(std::span<const MemoryRange>, std::span<const MemoryRange>,
                std::function<void(DeviceKernels&)> work) override {
    return InStream([&] { work(owner_->kernels()); });
  }

  Status Record(DeviceEvent* event) override {
    return InStream([&] { static_cast<CudaEvent*>(event)->event().record(stream_); });
  }

  Status Wait(DeviceEvent* event) override {
    return InStream([&] { static_cast<CudaEvent*>(event)->event().block(stream_); });
  }

  // CUDA reports errors of earlier work here. If a second call fails too, every later call in this
  // process will fail.
  Status Synchronize() override {
    Status status = InStream([&] { stream_.synchronize(); });
    if (status.ok()) return status;
    const bool lost = !InStream([&] { stream_.synchronize(); }).ok();
    return {StatusCode::kUnavailable, status.message(),
            lost ? StatusReason::kDeviceLost : StatusReason::kUnstated};
  }

 private:
  Status Copy(const at::Tensor& to, const at::Tensor& from) {
    return InStream([&] { to.copy_(from, /*non_blocking=*/true); });
  }

  template <class Work>
  Status InStream(const Work& work) {
    return CatchErrors(owner_->name(), [&] {
      const c10::InferenceMode no_gradients;
      const c10::StreamGuard guard(stream_);
      work();
    });
  }

  const TorchDevice* const owner_;
  const c10::Stream stream_;
};

class CudaDevice final : public TorchDevice {
 public:
  using TorchDevice::TorchDevice;

  Result<std::unique_ptr<DeviceStream>> MakeStream() override {
    std::unique_ptr<DeviceStream> stream;
    RETURN_IF_ERROR(CatchErrors(name(), [&] {
      const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
      stream = std::make_unique<CudaStream>(this, guard.getStreamFromGlobalPool(device()));
    }));
    return stream;
  }

  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override {
    return std::unique_ptr<DeviceEvent>(std::make_unique<CudaEvent>());
  }

  uint64_t memory_bytes_free() const override {
    uint64_t bytes = 0;
    const Status status = CatchErrors(name(), [&] {
      bytes = at::getDeviceAllocator(c10::DeviceType::CUDA)->getMemoryInfo(device().index()).first;
    });
    return status.ok() ? bytes : 0;
  }
};

class CpuEvent final : public DeviceEvent {
 public:
  void Record() { time_ = Clock::now(); }
  Result<uint64_t> NanosecondsSince(const DeviceEvent& earlier) const override {
    const auto passed = time_ - static_cast<const CpuEvent&>(earlier).time_;
    return static_cast<uint64_t>(std::chrono::nanoseconds(passed).count());
  }

 private:
  Clock::time_point time_;
};

// Every operation runs at once, before its call returns.
class CpuStream final : public DeviceStream {
 public:
  explicit CpuStream(const TorchDevice* owner) : owner_(owner) {}

  Status CopyIn(std::byte* device, const std::byte* pinned, size_t bytes) override {
    std::memcpy(device, pinned, bytes);
    return {};
  }
  Status CopyOut(std::byte* pinned, const std::byte* device, size_t bytes) override {
    std::memcpy(pinned, device, bytes);
    return {};
  }
  Status CopyAcross(std::byte* to, DeviceStream*, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  Status Launch(std::span<const MemoryRange>, std::span<const MemoryRange>,
                std::function<void(DeviceKernels&)> work) override {
    return CatchErrors(owner_->name(), [&] {
      const c10::InferenceMode no_gradients;
      UseThreads(1, at::get_num_threads, at::set_num_threads);
      work(owner_->kernels());
    });
  }
  Status Record(DeviceEvent* event) override {
    static_cast<CpuEvent*>(event)->Record();
    return {};
  }
  Status Wait(DeviceEvent*) override { return {}; }
  Status Synchronize() override { return {}; }

 private:
  const TorchDevice* const owner_;
};

class TorchCpuDevice final : public TorchDevice {
 public:
  using TorchDevice::TorchDevice;
  Result<std::unique_ptr<DeviceStream>> MakeStream() override {
    return std::unique_ptr<DeviceStream>(std::make_unique<CpuStream>(this));
  }
  Result<std::unique_ptr<DeviceEvent>> MakeEvent() override {
    return std::unique_ptr<DeviceEvent>(std::make_unique<CpuEvent>());
  }
  uint64_t memory_bytes_free() const override { return 0; }
};

Result<int> StartCuda(const std::string& name) {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) {
    return OtherDevices("device " + name +
                        ": expected torch with CUDA, got torch built without; "
                        "`make install CUDA=1` installs one");
  }
  int devices = 0;
  const Status started = CatchErrors(name, [&] {
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    at::globalContext().setFloat32MatmulPrecision("highest");  // Disables TF32.
    at::globalContext().setAllowTF32CuDNN(false);
    devices = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
  });
  if (!started.ok()) return OtherDevices("device " + started.message());
  return devices;
}

}  // namespace

Result<std::unique_ptr<Device>> MakeTorchDevice(const std::string& name, size_t position,
                                                const DeviceLayout& layout) {
  if (name.starts_with(kCpuPrefix)) {
    return std::unique_ptr<Device>(
        std::make_unique<TorchCpuDevice>(name, c10::Device(at::kCPU), position, layout));
  }
  ASSIGN_OR_RETURN(const int devices, StartCuda(name));
  int index = 0;
  const std::string_view number = std::string_view(name).substr(kCudaPrefix.size());
  std::from_chars(number.data(), number.data() + number.size(), index);
  if (index >= devices) {
    return OtherDevices(StrCat("device ", name, ": expected one of ", devices,
                               devices == 1 ? " GPU" : " GPUs", " of this machine"));
  }
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(
      name, c10::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)), position, layout));
}

}  // namespace embershard
