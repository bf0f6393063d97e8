// Which part of which table lies on which device.

#ifndef EMBERSHARD_PACKAGE_PLAN_H_
#define EMBERSHARD_PACKAGE_PLAN_H_

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
  int64_t column_begin = 0;
  int64_t column_end = 0;
  std::vector<size_t> devices;  // Positions in Plan::devices. More than one: replicas.
};

struct Plan {
  std::string name;
  std::vector<std::string> devices;  // "cpu:0", ...
  std::vector<Shard> shards;         // Tile every table exactly.
};

// `file` names the plan in refusals (kBadPackage).
Result<Plan> ParsePlan(std::string_view json, std::string_view file,
                       const Manifest& manifest);

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_PLAN_H_
