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
  // Threads for all devices together, including the thread that calls Run(). With 1, that thread
  // does all work; otherwise each device with rows has at least one thread. 0: CoreCount().
  int threads = 0;

  // A batch that reads and writes fewer bytes is done by the thread that calls Run(), because
  // waking others would take longer. 64 KiB take about 5 us. 0: always wake the others.
  uint64_t alone_bytes = uint64_t{128} << 10;

  // Null: BestBagSums().
  const BagSumsKernel* kernel = nullptr;
};

// Run() must not be called concurrently.
class ShardedLookup {
 public:
  // `package` must outlive the lookup. REQUIRES: all devices of its plan are named cpu:N.
  static Result<std::unique_ptr<ShardedLookup>> Make(const Package& package,
                                                     const ShardedLookupOptions& options);

  // `devices` has one entry per device of the plan. The caller of Run() works for number `own`.
  ShardedLookup(const std::vector<SequenceSpec>& sequences, std::vector<LookupPart> parts,
                std::vector<std::unique_ptr<LookupDevice>> devices, size_t own,
                uint64_t alone_bytes)
      : parts_(std::move(parts)),
        cut_(parts_, devices.size()),
        own_(own),
        alone_bytes_(alone_bytes),
        devices_(std::move(devices)) {
    for (const SequenceSpec& sequence : sequences)
      sequence_inputs_.push_back(sequence.sparse_input);
  }

  // Fills the matrices. `sparse` is in the order of the schema. The vector of an empty bag is 0,
  // and so is that of kZeroRow in a sequence.
  Status Run(std::span<const JaggedRows> sparse, const LookupMatrices& out);

  // Loads of the devices that hold tables, in the plan's order. Thread-safe.
  std::vector<DeviceLoad> device_loads() const;

 private:
  Status RunPhase(LookupPhase phase, const LookupBatch& batch);

  const std::vector<LookupPart> parts_;
  std::vector<size_t> sequence_inputs_;
  BatchCut cut_;
  std::vector<float> further_;

  std::vector<JaggedRows> lists_;
  std::vector<LookupMatrix> matrices_;
  std::vector<int64_t> single_offsets_;  // 0, 1, 2, ...: the offsets of lists of one id.

  const size_t own_;
  const uint64_t alone_bytes_;
  std::vector<std::unique_ptr<LookupDevice>> devices_;
};

}  // namespace embershard
