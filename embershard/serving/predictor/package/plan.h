// A plan assigns parts of tables to devices.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// A rectangle of a table: rows [row_begin, row_end) x columns [column_begin, column_end).
struct Shard {
  size_t table = 0;  // Position in Manifest::tables.
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;     // A multiple of 4.
  int64_t column_end = 0;       // A multiple of 4, or the table's dim.
  std::vector<size_t> devices;  // Positions in Plan::devices. More than one if replicated.
};

struct Plan {
  std::string name;
  std::vector<std::string> devices;  // "cpu:0", "cuda:1", "torch-cpu:0", ...
  std::vector<Shard> shards;         // They tile every table exactly.
};

std::string PlanFile(std::string_view name);

// Parses and checks the text of the plan `name`. Fails with kBadPackage, naming file and field:
// "plans/default.json: shards.1.rows: expected a span of 0 .. 944, got [0,945]".
Result<Plan> ParsePlan(std::string_view json, std::string_view name, const Manifest& manifest);

}  // namespace embershard
