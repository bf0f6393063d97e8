#include "lookup/lookup_times.h"

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "lookup/batch_cut.h"
#include "lookup/lookup_device.h"
#include "lookup/lookup_part.h"

namespace embershard {
namespace {

// Of the matrix that the sums are written to, beside those of many other tables. Each batch writes
// other columns: in a server too, a table's columns are no longer in the core's caches.
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

Status Check(const MeasuredTable& table, size_t row_bytes, std::span<const int64_t> ids,
             std::span<const int64_t> offsets) {
  if (table.dim == 0) return InvalidArgument("dim: expected at least 1, got 0");
  if (table.rows.empty() || table.rows.size() % row_bytes != 0) {
    return InvalidArgument("rows: expected whole rows of " + std::to_string(row_bytes) +
                           " bytes, got " + std::to_string(table.rows.size()) + " bytes");
  }
  const bool ascending = std::ranges::is_sorted(offsets);
  if (offsets.size() < 2 || offsets.front() != 0 || !ascending || offsets.back() == 0) {
    return InvalidArgument("offsets: expected 0 first, and ascending");
  }
  const auto of_batch = static_cast<size_t>(offsets.back());
  if (ids.empty() || ids.size() % of_batch != 0) {
    return InvalidArgument("ids: expected whole batches of " + std::to_string(of_batch) + ", got " +
                           std::to_string(ids.size()));
  }
  return {};
}

}  // namespace

Result<std::vector<double>> LookupTimes(const MeasuredTable& table, std::span<const int64_t> ids,
                                        std::span<const int64_t> offsets) {
  const size_t row_bytes = ColumnByte(table.weights, StoredColumns(table.dim));
  if (Status status = Check(table, row_bytes, ids, offsets); !status.ok()) return status;
  std::vector<LookupPart> parts = {WholeTable(table, row_bytes)};
  const size_t bags = offsets.size() - 1;
  const size_t columns = std::max(table.dim, std::min(kMatrixColumns, kMatrixValues / bags));
  std::vector<float> sums(bags * columns);
  const std::vector<LookupMatrix> matrices = {
      {.values = sums.data(), .bags = bags, .columns = columns}};
  BatchCut cut(parts, 1);
  LookupDevice device("cpu:0", table.rows.size(), 1, 1, BestBagSums());
  std::vector<double> times;
  const auto of_batch = static_cast<size_t>(offsets.back());
  for (size_t begin = 0; begin < ids.size(); begin += of_batch) {
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
