// Devices that run torch: CUDA, and the CPU with the same kernels. Does not include torch.

#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "device/device.h"

namespace embershard {

// Makes the device `name`:
//
//   cuda:N       GPU number N
//   torch-cpu:N  torch's and FBGEMM's kernels on the CPU, one operation after another. It runs a
//                plan for GPUs on a machine without them.
//
// `position` is the device's position in the plan. `layout` must outlive the device. Fails with
// kBadPackage and StatusReason::kOtherDevices if there is no such device or no driver, or if torch
// is built without CUDA.
Result<std::unique_ptr<Device>> MakeTorchDevice(const std::string& name, size_t position,
                                                const DeviceLayout& layout);

}  // namespace embershard
