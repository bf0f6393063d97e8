#include "registry/traffic_split.h"

#include <xxhash.h>

#include <random>

#include "base/split_mix.h"

namespace embershard {

bool TrafficSplit::Takes(std::string_view model, std::string_view key) const {
  // Seeded by the model, so that the same users are not in the canaries of all models.
  const uint64_t bits =
      key.empty()
          ? SplitMix64(seed_, 1 + drawn_.fetch_add(1, std::memory_order_relaxed))
          : XXH3_64bits_withSeed(key.data(), key.size(), XXH3_64bits(model.data(), model.size()));
  return UnitInterval(bits) < options_.share;
}

// Different for each server, so that replicas and restarts do not repeat one sequence.
uint64_t TrafficSplit::RandomSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace embershard
