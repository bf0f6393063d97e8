#include "lookup/lookup_times.h"

#include <algorithm>

#include "base/clock.h"
#include "lookup/batch_cut.h"
#include "lookup/lookup_device.h"
#include "lookup/lookup_part.h"

namespace embershard {
namespace {

// The matrix is as wide as one of many tables. Each batch writes other columns, because in a server
// a table's columns have left the core's caches, too.
constexpr size_t kMatrixColumns = 4096;
constexpr size_t kMatrixValues = size_t{4} << 20;

LookupPart WholeTable(const MeasuredTable& table, size_t row_bytes) {
  LookupPart part;
  part.table = "measured";
  part.table_rows = static_cast<int64_t>(table.rows.size() / row_bytes);
  part.table_begin = table.rows.data();
  part.row_bytes = row_bytes;
  part.weight_type = table.weights;
  part.row_end = part.table_rows;
  part.columns = table.dim;
  part.devices = {0};
  part.read_end = ColumnByte(table.weights, table.dim);
  SetRowsAhead(&part);
  return part;
}

}  // namespace

Result<std::vector<double>> LookupTimes(const MeasuredTable& table, std::span<const int64_t> ids,
                                        std::span<const int64_t> offsets) {
  const size_t row_bytes = ColumnByte(table.weights, StoredColumns(table.dim));
  std::vector<LookupPart> parts = {WholeTable(table, row_bytes)};
  const size_t bags = offsets.size() - 1;
  const size_t columns = std::max(table.dim, std::min(kMatrixColumns, kMatrixValues / bags));
  std::vector<float> sums(bags * columns);
  const std::vector<LookupMatrix> matrices = {
      {.values = sums.data(), .bags = bags, .columns = columns}};
  BatchCut cut(parts, 1);
  LookupDevice device("cpu:0", table.rows.size(), 1, 1, BestBagSums());
  std::vector<double> times;
  const auto batch_ids = static_cast<size_t>(offsets.back());
  for (size_t begin = 0; begin < ids.size(); begin += batch_ids) {
    const std::vector<JaggedRows> lists = {{.rows = &ids[begin], .offsets = offsets.data()}};
    parts[0].column = times.size() * table.dim % (columns - table.dim + 1);
    cut.Cut(parts, lists, matrices);
    const LookupBatch batch{parts, lists, matrices, &cut, nullptr};
    device.Begin(LookupPhase::kSum, batch, cut.shares()[0]);
    const double start = ThreadCpuSeconds();
    device.Work(0);
    times.push_back(ThreadCpuSeconds() - start);
    if (Status status = device.End(); !status.ok()) return status;
  }
  return times;
}

}  // namespace embershard
