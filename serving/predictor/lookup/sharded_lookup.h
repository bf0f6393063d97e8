// Lookups over the shards of a plan, with our own kernels (bag_sums.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "lookup/bag_sums.h"
#include "lookup/lookup.h"
#include "package/package.h"

namespace embershard {

struct ShardedLookupOptions {
  // Threads for all devices together, the one that calls Run() among them: at least one a
  // device, or that one alone. 0, the default: CoreCount().
  int threads = 0;

  // A batch of fewer bytes to read and write is done by the thread that calls Run(): waking
  // others would take longer. About 5 us for each 64 KiB. 0: always wake those that there are.
  uint64_t alone_bytes = uint64_t{128} << 10;

  // Null, the default: BestBagSums().
  const BagSumsKernel* kernel = nullptr;
};

// `package` must outlive the lookup. kBadPackage where the plan has a shard on a device that
// is no cpu.
Result<std::unique_ptr<Lookup>> MakeShardedLookup(const Package& package,
                                                  const ShardedLookupOptions& options);

}  // namespace embershard
