// From rows to sequences: the stored row of each id as floats, without pooling.
//
// Reads tables where they lie, whatever the plan: a vector is a copy, which no device
// could share with another.

#ifndef EMBERSHARD_LOOKUP_SEQUENCE_LOOKUP_H_
#define EMBERSHARD_LOOKUP_SEQUENCE_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "package/package.h"

namespace embershard {

// Any thread.
class SequenceLookup {
 public:
  // `package` must outlive the lookup.
  explicit SequenceLookup(const Package& package) : package_(package) {}

  // Fills `values`, [rows.size(), dim] of Schema::sequences[sequence], with the rows of its
  // table; zeros for kZeroRow. Every value is exactly scale * code + bias in float32, as
  // docs/format.md says it reads back. kInternal at any other row that is not the table's.
  Status Run(size_t sequence, std::span<const int64_t> rows, float* values) const;

 private:
  const Package& package_;
};

// Reads one stored row into `values`, [dim].
void DequantizeRow(WeightType weights, const std::byte* row, size_t dim, float* values);

}  // namespace embershard

#endif  // EMBERSHARD_LOOKUP_SEQUENCE_LOOKUP_H_
