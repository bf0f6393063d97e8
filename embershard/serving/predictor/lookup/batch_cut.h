// Assigns the pieces of a batch's lookups to devices. Deterministic: uses no thread and no clock.
//
// A piece is some bags of one part (lookup_part.h). Pieces are ordered by part, for a few hundred
// bags at a time, so that rows of a small table stay in the cache. Pieces of a replicated shard
// come last and go to the replica that has the fewest bytes to read so far.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lookup/lookup.h"
#include "lookup/lookup_part.h"

namespace embershard {

struct LookupPiece {
  uint32_t part = 0;
  uint32_t bag_begin = 0;
  uint32_t bag_end = 0;
  uint32_t bytes = 0;  // Estimate of the bytes that it reads and writes; saturates.
};

// Consecutive pieces that one thread does without a break.
struct LookupTask {
  uint32_t piece_begin = 0;
  uint32_t piece_end = 0;
};

struct DeviceShare {
  std::vector<LookupPiece> pieces;
  std::vector<LookupTask> tasks;  // Ranges of `pieces`.

  // Pieces of first parts whose further parts are added after all devices have summed.
  std::vector<LookupPiece> adds;

  uint64_t bytes = 0;  // Sum over `pieces`.
};

// Reuses its memory from batch to batch. Not thread-safe.
class BatchCut {
 public:
  BatchCut(std::span<const LookupPart> parts, size_t devices);

  // `parts` must be those of the constructor. See LookupBatch.
  void Cut(std::span<const LookupPart> parts, std::span<const JaggedRows> lists,
           std::span<const LookupMatrix> matrices);

  std::span<const DeviceShare> shares() const { return shares_; }  // One per device of the plan.
  uint64_t bytes() const;                                          // Sum over all shares.

  // Largest numbers of any piece so far, for which threads allocate buffers. Values are scattered
  // if a sequence's table is cut by rows.
  size_t piece_ids() const { return piece_ids_; }
  size_t piece_bags() const { return piece_bags_; }
  size_t scattered_values() const { return scattered_values_; }

  // Offset of a further part's sums, [bags, columns], and the total size of all parts' sums.
  size_t further_begin(size_t part) const { return further_begin_[part]; }
  size_t further_size() const { return further_size_; }

 private:
  void CutPart(size_t index, const LookupPart& part, const JaggedRows& lists, size_t bag_begin,
               size_t bag_end);
  void Place(const LookupPart& part, const LookupPiece& piece, size_t device);
  void PlaceReplicas(std::span<const LookupPart> parts);

  std::vector<std::vector<size_t>> order_;  // Parts of each matrix, those on one device first.
  std::vector<DeviceShare> shares_;
  std::vector<LookupPiece> choices_;  // Pieces of replicated shards.
  std::vector<size_t> further_begin_;
  size_t further_size_ = 0;
  size_t piece_ids_ = 0;
  size_t piece_bags_ = 0;
  size_t scattered_values_ = 0;
};

}  // namespace embershard
