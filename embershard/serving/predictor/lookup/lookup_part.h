// What the lookups of a schema become under a plan.
//
// A table's shards tile it. The sums over a shard's rows go straight to its columns of the
// lookup's vector where it begins at row 0; those shards tile the columns. Sums over rows
// further down are kept apart and added to these later, shard by shard in the order of rows:
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

// One shard of a table, as one lookup or one sequence of the schema reads it.
struct LookupPart {
  size_t lists = 0;   // Position in LookupBatch::lists.
  size_t matrix = 0;  // In LookupBatch::matrices.
  std::string input;  // Name of the sparse input.
  bool weighted = false;
  Pooling pooling = Pooling::kSum;

  // Every id is a bag of its own. Of a sequence each shard writes the vectors of its rows, and
  // that with row 0 the zeros of kZeroRow too: there is nothing to add.
  bool sequence = false;

  std::string table;
  int64_t table_rows = 0;
  const std::byte* table_begin = nullptr;  // Row 0.
  size_t row_bytes = 0;
  WeightType weight_type = WeightType::kInt8;

  int64_t row_begin = 0;
  int64_t row_end = 0;
  size_t table_column = 0;  // Of the table: where the shard begins.
  size_t columns = 0;
  size_t column = 0;  // In the matrix.

  std::vector<size_t> devices;  // Positions in Plan::devices. More than one: replicas.

  // For a first part: the further parts that share columns with it, in the order of rows.
  std::vector<size_t> further;

  // Bytes of a row that the shard needs, [read_begin, read_end) of it, header apart.
  size_t read_begin = 0;
  size_t read_end = 0;

  // See BagSumsCall.
  int64_t rows_ahead = 0;
  int64_t rows_far = 0;

  bool first() const { return row_begin == 0; }
  bool whole_rows() const { return first() && row_end == table_rows; }
  bool kept_apart() const { return !first() && !sequence; }
};

// Positions in LookupBatch::matrices; the pooled matrix of a scope.
constexpr size_t MatrixOf(Scope scope) { return scope == Scope::kRequest ? 0 : 1; }
constexpr size_t kFirstSequence = 2;

// Fills rows_ahead and rows_far by the bytes that the part reads of its rows.
void SetRowsAhead(LookupPart* part);

// All parts of the plan that the package was opened with. They point into its tables.
std::vector<LookupPart> LookupPartsOf(const Package& package);

}  // namespace embershard
