// Devices of torch: CUDA, and the CPU with the same kernels. Includes no torch.

#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "device/device.h"

namespace embershard {

// "cuda:N", or "torch-cpu:N": torch's and FBGEMM's kernels on the CPU, one operation after another,
// to try a plan for GPUs without one. kBadPackage with StatusReason::kOtherDevices: there is no
// such device, or no driver, or torch is built without CUDA.
//
// `position`: of the device in the plan. `layout` outlives the device.
Result<std::unique_ptr<Device>> MakeTorchDevice(const std::string& name, size_t position,
                                                const DeviceLayout& layout);

}  // namespace embershard
