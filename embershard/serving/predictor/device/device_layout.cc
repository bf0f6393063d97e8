#include "device/device_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/divide_up.h"
#include "lookup/half.h"
#include "lookup/lookup_part.h"

namespace embershard {
namespace {

// Limits for int8 and int4 rows, since FBGEMM computes `scale * code + bias` in float16 on GPUs.
constexpr float kScaleMax = 128;
constexpr float kHalfMax = 65504;

bool IsQuantized(WeightType weights) {
  return weights == WeightType::kInt8 || weights == WeightType::kInt4;
}

// Maps (table, first row, first column) to the position in DeviceLayout::shards of a device.
using ShardPositions = std::map<std::tuple<size_t, int64_t, int64_t>, size_t>;

class LayoutBuilder {
 public:
  explicit LayoutBuilder(const Package& package)
      : package_(package),
        devices_(package.plan().devices.size()),
        positions_(devices_),
        calls_of_device_(devices_) {}

  Result<DeviceLayout> Build() {
    layout_.shards.resize(devices_);
    layout_.weight_bytes.resize(devices_);
    for (const Shard& shard : package_.plan().shards) {
      for (const size_t device : shard.devices) RETURN_IF_ERROR(AddShard(shard, device));
    }
    const std::vector<LookupPart> parts = LookupPartsOf(package_);
    for (size_t home = 0; home < devices_; ++home) {
      layout_.homes.push_back(MakeHome(home, parts));
    }
    return std::move(layout_);
  }

 private:
  Status AddShard(const Shard& shard, size_t device) {
    const TableSpec& table = package_.manifest().tables[shard.table];
    if (shard.row_end - shard.row_begin >= std::numeric_limits<int32_t>::max()) {
      return BadPackage("plans/", package_.plan().name, ".json: table '", table.name,
                        "': expected fewer than 2147483647 rows in a shard, got ",
                        shard.row_end - shard.row_begin, "; split the table by rows");
    }
    PackedShard packed;
    packed.table = shard.table;
    packed.weights = table.weights;
    packed.row_begin = shard.row_begin;
    packed.row_end = shard.row_end;
    packed.first_column = static_cast<size_t>(shard.column_begin);
    packed.columns = static_cast<size_t>(shard.column_end - shard.column_begin);
    packed.row_bytes =
        RoundUp(ColumnByte(table.weights, StoredColumns(packed.columns)), kDeviceRowAlignment);
    packed.offset = layout_.weight_bytes[device];
    layout_.weight_bytes[device] += packed.size_bytes();
    positions_[device][{shard.table, shard.row_begin, shard.column_begin}] =
        layout_.shards[device].size();
    layout_.shards[device].push_back(std::move(packed));
    return {};
  }

  HomeLayout MakeHome(size_t home, const std::vector<LookupPart>& parts) {
    HomeLayout layout;
    std::map<std::tuple<size_t, Scope, LookupMode, bool, size_t>, size_t> calls;
    std::vector<std::pair<const LookupPart*, StagedCopy>> copies;
    for (size_t i = 0; i < parts.size(); ++i) {
      const LookupPart& part = parts[i];
      const bool at_home = std::ranges::count(part.devices, home) > 0;
      const size_t device = at_home ? home : part.devices.front();
      const bool mean = part.pooling == Pooling::kMean;
      const LookupMode mode = part.sequence ? LookupMode::kUnpooled
                              : mean        ? LookupMode::kMean
                                            : LookupMode::kSum;
      const Scope scope = ScopeOf(part);
      // Each part of a sequence has its own call. Without pooling, the results of several tables
      // would lie below each other instead of side by side.
      const size_t own_call = part.sequence ? i + 1 : 0;
      const auto [position, is_new] =
          calls.try_emplace({device, scope, mode, part.weighted, own_call}, layout.calls.size());
      if (is_new) {
        LookupCall& call = layout.calls.emplace_back();
        call.device = device;
        call.scope = scope;
        call.mode = mode;
        call.weighted = part.weighted;
      }
      LookupCall& call = layout.calls[position->second];
      const size_t shard = positions_[device].at(
          {TableOf(part), part.row_begin, static_cast<int64_t>(part.table_column)});
      copies.push_back({&part,
                        {.call = position->second,
                         .copy = {.from = call.columns,
                                  .to = part.column,
                                  .columns = part.columns,
                                  .target = part.matrix,
                                  .add = !part.first()}}});
      call.tables.push_back({.shard = shard,
                             .sparse_input = InputOf(part),
                             .result_column = call.columns,
                             .result_columns = StoredColumns(part.columns),
                             .skip_missing = mode == LookupMode::kSum});
      call.columns += call.tables.back().result_columns;
      call.staged = call.staged || device != home || !part.first();
    }
    std::ranges::stable_sort(copies, {}, [](const auto& copy) { return copy.first->row_begin; });
    for (const auto& [part, staged] : copies) {
      LookupCall& call = layout.calls[staged.call];
      if (call.staged) {
        layout.placed.push_back(staged);
      } else {
        AddMerged(staged.copy, &call.direct);
      }
    }
    SortByDevice(&layout);
    for (LookupCall& call : layout.calls) call.number = calls_of_device_[call.device]++;
    return layout;
  }

  // Merges the copy with the last one if both continue each other's columns.
  static void AddMerged(const ColumnCopy& copy, std::vector<ColumnCopy>* copies) {
    if (!copies->empty()) {
      ColumnCopy& last = copies->back();
      if (last.target == copy.target && last.from + last.columns == copy.from &&
          last.to + last.columns == copy.to) {
        last.columns += copy.columns;
        return;
      }
    }
    copies->push_back(copy);
  }

  static void SortByDevice(HomeLayout* home) {
    std::vector<size_t> order(home->calls.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [home](size_t call) { return home->calls[call].device; });
    std::vector<LookupCall> calls;
    std::vector<size_t> place(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      place[order[i]] = i;
      calls.push_back(std::move(home->calls[order[i]]));
    }
    home->calls = std::move(calls);
    for (StagedCopy& staged : home->placed) staged.call = place[staged.call];
  }

  size_t InputOf(const LookupPart& part) const {
    const size_t inputs = package_.schema().sparse.size();
    if (!part.sequence) return part.lists;
    return package_.schema().sequences[part.lists - inputs].sparse_input;
  }

  Scope ScopeOf(const LookupPart& part) const {
    return package_.schema().sparse[InputOf(part)].scope;
  }

  size_t TableOf(const LookupPart& part) const {
    const std::vector<TableSpec>& tables = package_.manifest().tables;
    const auto table = std::ranges::find(tables, part.table, &TableSpec::name);
    return static_cast<size_t>(table - tables.begin());
  }

  const Package& package_;
  const size_t devices_;
  std::vector<ShardPositions> positions_;
  std::vector<size_t> calls_of_device_;
  DeviceLayout layout_;
};

}  // namespace

Result<DeviceLayout> MakeDeviceLayout(const Package& package) {
  return LayoutBuilder(package).Build();
}

Status PackRows(const Package& package, const PackedShard& shard, int64_t begin, int64_t end,
                std::byte* packed) {
  const auto stored_row_bytes =
      static_cast<size_t>(package.manifest().tables[shard.table].row_bytes);
  const std::byte* rows = package.tables().rows(shard.table);
  const size_t header = IsQuantized(shard.weights) ? kScaleAndBiasBytes : 0;
  const size_t codes_end = ColumnByte(shard.weights, StoredColumns(shard.columns));
  const size_t first_code = ColumnByte(shard.weights, shard.first_column);
  std::memset(packed, 0, static_cast<size_t>(end - begin) * shard.row_bytes);
  for (int64_t row = begin; row < end; ++row, packed += shard.row_bytes) {
    if (row == shard.zero_row()) continue;
    const std::byte* stored = rows + static_cast<size_t>(shard.row_begin + row) * stored_row_bytes;
    std::memcpy(packed, stored, header);
    std::memcpy(packed + header, stored + first_code, codes_end - header);
    if (header == 0) continue;
    uint16_t halves[2] = {};  // Scale, bias.
    std::memcpy(halves, stored, sizeof(halves));
    const float scale = FloatOfHalf(halves[0]);
    const float bias = FloatOfHalf(halves[1]);
    const float code_max = shard.weights == WeightType::kInt8 ? 255 : 15;
    if (std::abs(scale) < kScaleMax && std::abs(bias) <= kHalfMax &&
        std::abs(scale * code_max + bias) <= kHalfMax) {
      continue;
    }
    return BadPackage("table '", package.manifest().tables[shard.table].name, "', row ",
                      shard.row_begin + row,
                      ": expected a scale below 128 and values up to 65504 on a GPU, got scale ",
                      scale, " and bias ", bias, "; export the table with fp16 or fp32 weights");
  }
  return {};
}

}  // namespace embershard
