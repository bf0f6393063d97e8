// Packages and batches for models on devices.

#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "lookup/lookup_fixture.h"
#include "model/slot.h"
#include "package/manifest.h"

namespace embershard::testing {

// Cuts every table of EveryKindOfLookup() over the devices in another way: whole, by rows, by
// columns, by both, or whole on several. For PackageBuilder::AddPlanOfShards().
nlohmann::json CutShards(size_t devices);

// "kind:0", "kind:1", ...
std::vector<std::string> DeviceNames(const std::string& kind, size_t devices);

// A random batch of up to 3 requests and 8 examples, with lists of up to `longest_max` ids.
void FillSlot(const Schema& schema, size_t longest_max, std::mt19937* random, Slot* slot);

// Copies the members that the builder fills.
void CopyInputs(const Slot& from, Slot* to);

}  // namespace embershard::testing
