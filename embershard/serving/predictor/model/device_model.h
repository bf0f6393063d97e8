// A model whose tables and dense program lie on devices with memory of their own.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "model/model.h"
#include "package/package.h"

namespace embershard {

// Makes the device of that name, such as "cuda:0". `layout` outlives the device.
using DeviceMaker = std::function<Result<std::unique_ptr<Device>>(
    const std::string& name, size_t position, const DeviceLayout& layout)>;

// Copies in, kernels and copies out of three batches keep a device busy.
inline constexpr size_t kDeviceSlots = 3;

struct DeviceModelOptions {
  size_t slots = kDeviceSlots;

  // Vectors travel between devices as float16; else as float32.
  bool half_transfers = false;

  // Reads of the package's program are paced by it. Null: as fast as they can be.
  ReadControl* control = nullptr;
};

// Packs the tables, copies them to the devices of the package's plan, and loads the dense program
// on each of them.
Result<std::unique_ptr<Model>> MakeDeviceModel(std::shared_ptr<const Package> package,
                                               const DeviceMaker& make_device,
                                               const DeviceModelOptions& options);

}  // namespace embershard
