#ifndef EMBERSHARD_PACKAGE_PLAN_TILING_H_
#define EMBERSHARD_PACKAGE_PLAN_TILING_H_

#include <string_view>

#include "base/status.h"
#include "package/plan.h"

namespace embershard {

// Refuses shards that overlap, or that leave part of a table on no device.
// REQUIRES: every shard lies inside its table.
Status CheckTiling(const Plan& plan, const Manifest& manifest, std::string_view file);

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_PLAN_TILING_H_
