#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "dense/torchscript_module.h"
#include "device/device.h"

namespace embershard {

// `weights` are the packed rows of the device at `position` of the plan. May throw torch's
// exceptions.
std::unique_ptr<DeviceKernels> MakeTorchKernels(c10::Device device, size_t position,
                                                const DeviceLayout& layout,
                                                const std::byte* weights, size_t weight_bytes,
                                                std::unique_ptr<DeviceProgram> program);

}  // namespace embershard
