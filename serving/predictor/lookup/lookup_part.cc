#include "lookup/lookup_part.h"

#include <algorithm>
#include <utility>

namespace embershard {
namespace {

constexpr size_t kHeaderBytes = 4;  // Scale and bias of a quantized row.
constexpr size_t kLineBytes = 64;

// What lies in the nearest cache while rows are on their way: a quarter of it.
constexpr size_t kAheadBytes = size_t{12} << 10;
constexpr size_t kRowsAheadMin = 4;
constexpr size_t kRowsAheadMax = 64;

size_t ColumnBegin(WeightType weights, size_t column) {
  switch (weights) {
    case WeightType::kInt8:
      return kHeaderBytes + column;
    case WeightType::kInt4:
      return kHeaderBytes + column / 2;
    case WeightType::kFp16:
      return 2 * column;
  }
  return 0;
}

Status CheckDevices(const Plan& plan, const Manifest& manifest) {
  for (const Shard& shard : plan.shards) {
    for (const size_t device : shard.devices) {
      if (plan.devices[device].starts_with("cpu:")) continue;
      return BadPackage("plans/" + plan.name + ".json: table '" +
                        manifest.tables[shard.table].name + "': expected cpu devices, got '" +
                        plan.devices[device] + "'");
    }
  }
  return {};
}

LookupPart PartOf(const Package& package, size_t sparse_input, const LookupSpec& lookup,
                  const Shard& shard) {
  const SparseInput& input = package.schema().sparse[sparse_input];
  const TableSpec& table = package.manifest().tables[lookup.table];
  LookupPart part{
      .sparse_input = sparse_input,
      .input = input.name,
      .scope = input.scope,
      .weighted = input.weighted,
      .pooling = lookup.pooling,
      .table = table.name,
      .table_rows = table.rows,
      .table_begin = package.tables().base() + package.tables().offset_bytes(lookup.table),
      .row_bytes = static_cast<size_t>(table.row_bytes),
      .weights = table.weights,
      .row_begin = shard.row_begin,
      .row_end = shard.row_end,
      .table_column = static_cast<size_t>(shard.column_begin),
      .columns = static_cast<size_t>(shard.column_end - shard.column_begin),
      .column = lookup.column + static_cast<size_t>(shard.column_begin),
      .devices = shard.devices,
      .further = {},
  };
  part.read_begin = part.table_column == 0 ? 0 : ColumnBegin(part.weights, part.table_column);
  part.read_end = ColumnBegin(part.weights, part.table_column + part.columns);
  const size_t lines = (part.read_end - part.read_begin) / kLineBytes + 1;
  part.rows_ahead = static_cast<int64_t>(
      std::clamp(kAheadBytes / (lines * kLineBytes), kRowsAheadMin, kRowsAheadMax));
  return part;
}

// Fills `further` of the parts from `begin` on: those of one lookup.
void Link(size_t begin, std::vector<LookupPart>* parts) {
  for (size_t i = begin; i < parts->size(); ++i) {
    LookupPart& part = (*parts)[i];
    if (!part.first()) continue;
    for (size_t j = begin; j < parts->size(); ++j) {
      const LookupPart& other = (*parts)[j];
      const bool meets =
          other.column < part.column + part.columns && part.column < other.column + other.columns;
      if (!other.first() && meets) part.further.push_back(j);
    }
    std::sort(part.further.begin(), part.further.end(), [parts](size_t left, size_t right) {
      const LookupPart& a = (*parts)[left];
      const LookupPart& b = (*parts)[right];
      return std::pair(a.row_begin, a.column) < std::pair(b.row_begin, b.column);
    });
  }
}

}  // namespace

Result<std::vector<LookupPart>> LookupPartsOf(const Package& package) {
  if (Status status = CheckDevices(package.plan(), package.manifest()); !status.ok()) return status;
  std::vector<std::vector<const Shard*>> shards(package.manifest().tables.size());
  for (const Shard& shard : package.plan().shards) shards[shard.table].push_back(&shard);

  std::vector<LookupPart> parts;
  for (size_t i = 0; i < package.schema().sparse.size(); ++i) {
    for (const LookupSpec& lookup : package.schema().sparse[i].lookups) {
      const size_t begin = parts.size();
      for (const Shard* shard : shards[lookup.table]) {
        parts.push_back(PartOf(package, i, lookup, *shard));
      }
      Link(begin, &parts);
    }
  }
  return parts;
}

}  // namespace embershard
