#include "lookup/lookup_part.h"

#include <algorithm>
#include <utility>

#include "lookup/prefetch.h"

namespace embershard {
namespace {

// Bytes of rows to prefetch at a time: a quarter of the first-level cache.
constexpr size_t kAheadBytes = size_t{12} << 10;
constexpr size_t kRowsAheadMin = 4;
constexpr size_t kRowsAheadMax = 64;

// A table of at least this size is mostly outside the second-level cache.
constexpr size_t kFarBytes = size_t{8} << 20;
constexpr int64_t kRowsFar = 64;

LookupPart PartOf(const Package& package, const SparseInput& input, size_t table_index,
                  const Shard& shard) {
  const TableSpec& table = package.manifest().tables[table_index];
  LookupPart part;
  part.input = input.name;
  part.table = table.name;
  part.table_rows = table.rows;
  part.table_begin = package.tables().rows(table_index);
  part.row_bytes = static_cast<size_t>(table.row_bytes);
  part.weight_type = table.weights;
  part.row_begin = shard.row_begin;
  part.row_end = shard.row_end;
  part.table_column = static_cast<size_t>(shard.column_begin);
  part.columns = static_cast<size_t>(shard.column_end - shard.column_begin);
  part.column = part.table_column;
  part.devices = shard.devices;
  part.read_begin = part.table_column == 0 ? 0 : ColumnByte(part.weight_type, part.table_column);
  part.read_end = ColumnByte(part.weight_type, part.table_column + part.columns);
  SetRowsAhead(&part);
  return part;
}

void LinkFurther(size_t begin, std::vector<LookupPart>* parts) {
  for (size_t i = begin; i < parts->size(); ++i) {
    LookupPart& part = (*parts)[i];
    if (!part.first()) continue;
    for (size_t j = begin; j < parts->size(); ++j) {
      const LookupPart& other = (*parts)[j];
      const bool shares_columns =
          other.column < part.column + part.columns && part.column < other.column + other.columns;
      if (!other.first() && shares_columns) part.further.push_back(j);
    }
    std::sort(part.further.begin(), part.further.end(), [parts](size_t left, size_t right) {
      const LookupPart& a = (*parts)[left];
      const LookupPart& b = (*parts)[right];
      return std::pair(a.row_begin, a.column) < std::pair(b.row_begin, b.column);
    });
  }
}

}  // namespace

void SetRowsAhead(LookupPart* part) {
  const size_t bytes = part->read_end - part->read_begin;
  const size_t lines = bytes / kLineBytes + 1;
  part->rows_ahead = static_cast<int64_t>(
      std::clamp(kAheadBytes / (lines * kLineBytes), kRowsAheadMin, kRowsAheadMax));
  const auto rows = static_cast<size_t>(part->row_end - part->row_begin);
  part->rows_far = rows * bytes < kFarBytes ? 0 : kRowsFar;
}

std::vector<LookupPart> LookupPartsOf(const Package& package) {
  std::vector<std::vector<const Shard*>> shards(package.manifest().tables.size());
  for (const Shard& shard : package.plan().shards) shards[shard.table].push_back(&shard);

  const std::vector<SparseInput>& sparse = package.schema().sparse;
  std::vector<LookupPart> parts;
  for (size_t i = 0; i < sparse.size(); ++i) {
    for (const LookupSpec& lookup : sparse[i].lookups) {
      const size_t begin = parts.size();
      for (const Shard* shard : shards[lookup.table]) {
        LookupPart& part = parts.emplace_back(PartOf(package, sparse[i], lookup.table, *shard));
        part.lists = i;
        part.matrix = MatrixOf(sparse[i].scope);
        part.weighted = sparse[i].weighted;
        part.pooling = lookup.pooling;
        part.column += lookup.column;
      }
      LinkFurther(begin, &parts);
    }
  }
  const std::vector<SequenceSpec>& sequences = package.schema().sequences;
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (const Shard* shard : shards[sequences[i].table]) {
      LookupPart& part = parts.emplace_back(
          PartOf(package, sparse[sequences[i].sparse_input], sequences[i].table, *shard));
      part.lists = sparse.size() + i;
      part.matrix = kFirstSequence + i;
      part.sequence = true;
    }
  }
  return parts;
}

}  // namespace embershard
