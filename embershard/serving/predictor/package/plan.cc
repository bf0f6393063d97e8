#include "package/plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "package/json.h"
#include "package/manifest_fields.h"
#include "package/refusal.h"

namespace embershard {
namespace {

constexpr size_t kDevicesMax = 1024;

// Accepts "cpu:0", "cuda:12" or "torch-cpu:0", with at most four digits and no leading zeros.
bool IsDevice(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view kind = text.substr(0, colon);
  const std::string_view number = text.substr(colon + 1);
  if (kind != "cpu" && kind != "cuda" && kind != "torch-cpu") return false;
  if (number.empty() || number.size() > 4 || (number[0] == '0' && number.size() > 1)) return false;
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> ReadDevices(const JsonValue& value) {
  std::vector<std::string> devices;
  for (const JsonValue& device : value.Elements(1)) {
    std::string text =
        device.TextThat(IsDevice, "a device like cpu:0 or cuda:0, with a number of at most 9999");
    if (std::find(devices.begin(), devices.end(), text) != devices.end()) {
      device.Refuse("distinct devices", text + " twice");
    }
    devices.push_back(std::move(text));
    if (devices.size() > kDevicesMax) {
      value.Refuse("at most 1024 devices", "more");
      break;
    }
  }
  return devices;
}

// Both edges must be multiples of `multiple`, unless the end is `end_max`.
void ReadSpan(const JsonValue& value, int64_t end_max, int64_t multiple, int64_t* begin,
              int64_t* end) {
  const std::string expected = "a span of 0 .. " + std::to_string(end_max);
  const std::vector<JsonValue> edges = value.Elements();
  if (edges.size() != 2) return value.Refuse(expected);
  *begin = edges[0].Integer(0, INT64_MAX);
  *end = edges[1].Integer(1, INT64_MAX);
  if (*begin >= *end || *end > end_max) value.Refuse(expected);
  if (*begin % multiple != 0 || (*end % multiple != 0 && *end != end_max)) {
    value.Refuse("multiples of " + std::to_string(multiple) + ", or " + std::to_string(end_max) +
                 " at the end");
  }
}

using TablesByName = std::map<std::string_view, size_t>;

Shard ReadShard(const JsonValue& value, const Manifest& manifest, const TablesByName& tables,
                size_t devices) {
  value.ExpectKeys({"table", "rows", "columns", "devices"});
  Shard shard;
  const std::string name = ReadPlainName(value["table"]);
  const auto table = tables.find(name);
  if (table == tables.end()) {
    value["table"].Refuse("the name of a table");
    return shard;
  }
  shard.table = table->second;
  const TableSpec& spec = manifest.tables[shard.table];
  ReadSpan(value["rows"], spec.rows, 1, &shard.row_begin, &shard.row_end);
  ReadSpan(value["columns"], spec.dim, kColumnMultiple, &shard.column_begin, &shard.column_end);
  std::vector<bool> seen(devices);
  for (const JsonValue& device : value["devices"].Elements(1)) {
    const auto index = static_cast<size_t>(device.Integer(0, INT64_MAX));
    if (index >= devices) {
      device.Refuse("a device of the plan");
      break;
    }
    if (seen[index]) value["devices"].Refuse("distinct devices");
    seen[index] = true;
    shard.devices.push_back(index);
  }
  return shard;
}

Plan ReadPlan(const JsonValue& root, std::string_view name, const Manifest& manifest) {
  CheckFormatVersion(root);
  root.ExpectKeys({"format_version", "name", "devices", "shards"});
  Plan plan;
  plan.name = ReadPlainName(root["name"]);
  if (plan.name != name) root["name"].Refuse(name);
  plan.devices = ReadDevices(root["devices"]);
  TablesByName tables;
  for (size_t i = 0; i < manifest.tables.size(); ++i) tables[manifest.tables[i].name] = i;
  for (const JsonValue& shard : root["shards"].Elements()) {
    plan.shards.push_back(ReadShard(shard, manifest, tables, plan.devices.size()));
  }
  return plan;
}

// Finds overlapping shards with a line that sweeps down a table's rows. Holds the shards that the
// line has reached, by first column. Their columns are disjoint, because a shard that ends above
// the line is removed when another one needs its columns.
class Sweep {
 public:
  explicit Sweep(const Plan& plan) : plan_(plan) {}

  // Returns a shard that `shard` overlaps, or `shard` itself. Shards must be added in the order of
  // their first rows.
  size_t Add(size_t shard) {
    const Shard& added = plan_.shards[shard];
    auto next = reached_.lower_bound(added.column_begin);
    if (next != reached_.begin() && EndOf(std::prev(next)) > added.column_begin) --next;
    while (next != reached_.end() && next->first < added.column_end) {
      if (plan_.shards[next->second].row_end > added.row_begin) return next->second;
      next = reached_.erase(next);
    }
    reached_.emplace(added.column_begin, shard);
    return shard;
  }

 private:
  using ShardsByColumn = std::map<int64_t, size_t>;
  int64_t EndOf(ShardsByColumn::const_iterator entry) const {
    return plan_.shards[entry->second].column_end;
  }

  const Plan& plan_;
  ShardsByColumn reached_;
};

Status CheckTable(const Plan& plan, const TableSpec& table, std::vector<size_t> shards,
                  std::string_view file) {
  std::stable_sort(shards.begin(), shards.end(), [&](size_t a, size_t b) {
    return plan.shards[a].row_begin < plan.shards[b].row_begin;
  });
  Sweep sweep(plan);
  int64_t area = 0;  // Cannot overflow: at most the table's 2^40 rows of 2^16 columns.
  for (const size_t index : shards) {
    const size_t overlapped = sweep.Add(index);
    if (overlapped != index) {
      const auto [first, second] = std::minmax(overlapped, index);
      return Refusal(file, "shards." + std::to_string(second),
                     "rectangles of " + table.name + " that do not overlap",
                     "one over shards." + std::to_string(first));
    }
    const Shard& shard = plan.shards[index];
    area += (shard.row_end - shard.row_begin) * (shard.column_end - shard.column_begin);
  }
  const int64_t whole = table.rows * table.dim;
  if (area == whole) return {};
  return Refusal(file, "shards",
                 "rectangles that cover the " + std::to_string(table.rows) + " x " +
                     std::to_string(table.dim) + " values of " + table.name,
                 std::to_string(area) + " of " + std::to_string(whole));
}

// Fails if shards overlap, or do not cover all of a table.
// REQUIRES: every shard lies inside its table.
Status CheckTiling(const Plan& plan, const Manifest& manifest, std::string_view file) {
  std::vector<std::vector<size_t>> table_shards(manifest.tables.size());
  for (size_t i = 0; i < plan.shards.size(); ++i) {
    table_shards[plan.shards[i].table].push_back(i);
  }
  for (size_t i = 0; i < manifest.tables.size(); ++i) {
    RETURN_IF_ERROR(CheckTable(plan, manifest.tables[i], table_shards[i], file));
  }
  return {};
}

}  // namespace

std::string PlanFile(std::string_view name) { return "plans/" + std::string(name) + ".json"; }

Result<Plan> ParsePlan(std::string_view json, std::string_view name, const Manifest& manifest) {
  const std::string file = PlanFile(name);
  nlohmann::json document;
  RETURN_IF_ERROR(ParseJson(json, file, &document));
  FirstRefusal refusal(file);
  Plan plan = ReadPlan(JsonValue(document, &refusal), name, manifest);
  if (!refusal.ok()) return refusal.status();
  RETURN_IF_ERROR(CheckTiling(plan, manifest, file));
  return plan;
}

}  // namespace embershard
