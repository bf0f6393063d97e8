// Which device does which piece of a batch's lookups. Rules only: no thread, no clock.
//
// A piece is some bags of one part (lookup_part.h). Pieces lie in the order of parts, those of some
// hundred bags at a time, so that rows of a small table are read again from the cache. A piece that
// replicas could do goes to the one with the fewest bytes to read so far, once the pieces that
// have no choice are placed.

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
  uint32_t bytes = 0;  // About what it reads and writes; saturates.
};

// Consecutive pieces that one thread does in one go.
struct LookupTask {
  uint32_t piece_begin = 0;
  uint32_t piece_end = 0;
};

// One device's share of a batch.
struct DeviceShare {
  std::vector<LookupPiece> pieces;
  std::vector<LookupTask> tasks;  // Of `pieces`.

  // The pieces of first parts which have further ones, to be added when all devices are done.
  std::vector<LookupPiece> adds;

  uint64_t bytes = 0;  // Of `pieces`.
};

// Keeps its memory from batch to batch. Not thread-safe.
class BatchCut {
 public:
  BatchCut(std::span<const LookupPart> parts, size_t devices);

  // Cuts a batch. `parts` are those of the constructor; see LookupBatch.
  void Cut(std::span<const LookupPart> parts, std::span<const JaggedRows> lists,
           std::span<const LookupMatrix> matrices);

  std::span<const DeviceShare> shares() const { return shares_; }  // One a device of the plan.
  uint64_t bytes() const;                                          // Of all shares.

  // Most that any piece so far had: what threads keep room for. Values are scattered where a
  // sequence's table is cut by rows.
  size_t piece_ids() const { return piece_ids_; }
  size_t piece_bags() const { return piece_bags_; }
  size_t scattered_values() const { return scattered_values_; }

  // Where the sums of a further part begin, among those of all, [bags, columns] each.
  size_t further_begin(size_t part) const { return further_begin_[part]; }
  size_t further_size() const { return further_size_; }

 private:
  void CutPart(size_t index, const LookupPart& part, const JaggedRows& lists, size_t bag_begin,
               size_t bag_end);
  void Place(const LookupPart& part, const LookupPiece& piece, size_t device);
  void PlaceReplicas(std::span<const LookupPart> parts);

  std::vector<std::vector<size_t>> order_;  // Parts of each matrix: those without a choice first.
  std::vector<DeviceShare> shares_;
  std::vector<LookupPiece> choices_;  // Pieces that replicas could do.
  std::vector<size_t> further_begin_;
  size_t further_size_ = 0;
  size_t piece_ids_ = 0;
  size_t piece_bags_ = 0;
  size_t scattered_values_ = 0;
};

}  // namespace embershard
