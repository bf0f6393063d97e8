// Lookups over the shards of a plan, with our own kernels (bag_sums.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "lookup/bag_sums.h"
#include "lookup/batch_cut.h"
#include "lookup/lookup.h"
#include "lookup/lookup_device.h"
#include "lookup/lookup_part.h"
#include "lookup/piece_sums.h"
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

// One call of Run() at a time.
class ShardedLookup {
 public:
  // `package` must outlive the lookup. REQUIRES: the devices of its plan are processors.
  static Result<std::unique_ptr<ShardedLookup>> Make(const Package& package,
                                                     const ShardedLookupOptions& options);

  // Of the devices, one for each of the plan, the thread that calls Run() works for `own`.
  ShardedLookup(const std::vector<SequenceSpec>& sequences, std::vector<LookupPart> parts,
                std::vector<std::unique_ptr<LookupDevice>> devices, size_t own,
                uint64_t alone_bytes)
      : parts_(std::move(parts)),
        cut_(parts_, devices.size()),
        own_(own),
        alone_bytes_(alone_bytes),
        devices_(std::move(devices)) {
    for (const SequenceSpec& each : sequences) inputs_of_sequences_.push_back(each.sparse_input);
  }

  // Fills the matrices completely. `sparse` has one entry for each sparse input of
  // the schema. An empty bag gives zeros, and so does kZeroRow in a sequence; every other
  // vector of a sequence is the row's float(scale * code + bias).
  Status Run(std::span<const JaggedRows> sparse, const LookupMatrices& out);

  // Those that tables lie on, in the plan's order. Any thread, at any time.
  std::vector<DeviceLoad> device_loads() const;

 private:
  Status RunPhase(LookupPhase phase, const LookupBatch& batch);

  const std::vector<LookupPart> parts_;
  std::vector<size_t> inputs_of_sequences_;
  BatchCut cut_;
  std::vector<float> further_;

  // Of the batch. Their memory is kept.
  std::vector<JaggedRows> lists_;
  std::vector<LookupMatrix> matrices_;
  std::vector<int64_t> ones_;  // 0, 1, 2, ...: offsets of lists of one id.

  const size_t own_;
  const uint64_t alone_bytes_;
  std::vector<std::unique_ptr<LookupDevice>> devices_;
};

}  // namespace embershard
