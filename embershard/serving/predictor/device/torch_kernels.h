// The computations of a device, by torch and FBGEMM. Includes torch.

#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "dense/torchscript_module.h"
#include "device/device.h"

namespace embershard {

// `weights`: the packed rows of the device at `position` of the plan. Throws what torch throws.
std::unique_ptr<DeviceKernels> MakeTorchKernels(c10::Device device, size_t position,
                                                const DeviceLayout& layout,
                                                const std::byte* weights, size_t weight_bytes,
                                                std::unique_ptr<DeviceProgram> program);

}  // namespace embershard
