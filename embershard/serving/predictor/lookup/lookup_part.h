// The lookups of a schema, split by the shards of a plan.
//
// A table's shards tile it. A shard that begins at row 0 writes its sums straight to its columns of
// the lookup's vector; these shards tile the columns. The sums of shards further down are kept
// apart. They are added later, shard by shard in the order of rows:
//
//            columns 0 .. 8   8 .. 16
//   rows 0   ┌───────────────┬────────┐
//            │ first         │ first  │   straight to the vector's columns
//   500      ├───────────────┴────────┤
//            │ further               │    kept apart; added to both
//   944      └────────────────────────┘

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "package/package.h"

namespace embershard {

struct LookupPart {
  size_t lists = 0;   // Position in LookupBatch::lists.
  size_t matrix = 0;  // Position in LookupBatch::matrices.
  std::string input;  // Name of the sparse input.
  bool weighted = false;
  Pooling pooling = Pooling::kSum;

  // In a sequence every id is a bag of its own. Each shard writes the vectors of its rows, and the
  // shard with row 0 also writes zeros for kZeroRow. Nothing is added.
  bool sequence = false;

  std::string table;
  int64_t table_rows = 0;
  const std::byte* table_begin = nullptr;  // Row 0.
  size_t row_bytes = 0;
  WeightType weight_type = WeightType::kInt8;

  int64_t row_begin = 0;
  int64_t row_end = 0;
  size_t table_column = 0;  // First column in the table.
  size_t columns = 0;
  size_t column = 0;  // First column in the matrix.

  std::vector<size_t> devices;  // Positions in Plan::devices. More than one if replicated.

  // The further parts that share columns with a first part, in the order of rows.
  std::vector<size_t> further;

  // Bytes [read_begin, read_end) of a row hold the shard's columns. They include the row's header
  // only if the shard has column 0.
  size_t read_begin = 0;
  size_t read_end = 0;

  int64_t rows_ahead = 0;
  int64_t rows_far = 0;

  bool first() const { return row_begin == 0; }
  bool whole_rows() const { return first() && row_end == table_rows; }
  bool kept_apart() const { return !first() && !sequence; }
};

// Positions in LookupBatch::matrices: the pooled matrix of each scope, then the sequences.
constexpr size_t MatrixOf(Scope scope) { return scope == Scope::kRequest ? 0 : 1; }
constexpr size_t kFirstSequence = 2;

void SetRowsAhead(LookupPart* part);

// The parts point into the package's tables.
std::vector<LookupPart> LookupPartsOf(const Package& package);

}  // namespace embershard
