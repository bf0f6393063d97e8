// A model with its tables and dense program on devices that have their own memory.

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

// Makes a device such as "cuda:0". `layout` outlives the device.
using DeviceMaker = std::function<Result<std::unique_ptr<Device>>(
    const std::string& name, size_t position, const DeviceLayout& layout)>;

// Three batches keep a device busy: one copies in, one computes, and one copies out.
inline constexpr size_t kDeviceSlots = 3;

struct DeviceModelOptions {
  size_t slots = kDeviceSlots;

  // Transfers vectors between devices as float16 instead of float32.
  bool half_transfers = false;

  // Limits the rate of reading the package's program. Null: no limit.
  ReadControl* control = nullptr;
};

// Packs the tables, copies them to the plan's devices, and loads the dense program on each.
Result<std::unique_ptr<Model>> MakeDeviceModel(std::shared_ptr<const Package> package,
                                               const DeviceMaker& make_device,
                                               const DeviceModelOptions& options);

}  // namespace embershard
