#include "package/plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "package/json_parse.h"
#include "package/json_value.h"
#include "package/manifest_fields.h"
#include "package/plan_tiling.h"

namespace embershard {
namespace {

constexpr size_t kDevicesMax = 1024;

// "cpu:0", "cuda:12": a number of up to four digits, without leading zeros.
bool IsDevice(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view kind = text.substr(0, colon);
  const std::string_view number = text.substr(colon + 1);
  if (kind != "cpu" && kind != "cuda") return false;
  if (number.empty() || number.size() > 4 || (number[0] == '0' && number.size() > 1)) return false;
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> ReadDevices(const JsonValue& value) {
  std::vector<std::string> devices;
  for (const JsonValue& device : value.Elements(1)) {
    std::string text = device.TextThat(IsDevice, "a device like cpu:0 or cuda:0");
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

// `multiple`: of both edges, unless one is `end_max`.
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

}  // namespace

std::string PlanFile(std::string_view name) { return "plans/" + std::string(name) + ".json"; }

Result<Plan> ParsePlan(std::string_view json, std::string_view name, const Manifest& manifest) {
  const std::string file = PlanFile(name);
  nlohmann::json document;
  if (Status status = ParseJson(json, file, &document); !status.ok()) return status;
  FirstRefusal refusal(file);
  Plan plan = ReadPlan(JsonValue(document, &refusal), name, manifest);
  if (!refusal.ok()) return refusal.status();
  if (Status status = CheckTiling(plan, manifest, file); !status.ok()) return status;
  return plan;
}

}  // namespace embershard
