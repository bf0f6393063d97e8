#include "package/plan_tiling.h"

#include <algorithm>
#include <map>
#include <string>

#include "package/refusal.h"

namespace embershard {
namespace {

// The shards of one table that a line sweeping down its rows has met, by their first
// column. Their columns are disjoint: one that ends above the line makes room.
class Sweep {
 public:
  explicit Sweep(const Plan& plan) : plan_(plan) {}

  // The shard that `shard` lies over; itself when there is none. Shards come in the order
  // of their first rows.
  size_t Add(size_t shard) {
    const Shard& added = plan_.shards[shard];
    auto next = met_.lower_bound(added.column_begin);
    if (next != met_.begin() && EndOf(std::prev(next)) > added.column_begin) --next;
    while (next != met_.end() && next->first < added.column_end) {
      if (plan_.shards[next->second].row_end > added.row_begin) return next->second;
      next = met_.erase(next);
    }
    met_.emplace(added.column_begin, shard);
    return shard;
  }

 private:
  using Met = std::map<int64_t, size_t>;
  int64_t EndOf(Met::const_iterator met) const { return plan_.shards[met->second].column_end; }

  const Plan& plan_;
  Met met_;
};

Status CheckTable(const Plan& plan, const TableSpec& table, std::vector<size_t> shards,
                  std::string_view file) {
  std::stable_sort(shards.begin(), shards.end(), [&](size_t a, size_t b) {
    return plan.shards[a].row_begin < plan.shards[b].row_begin;
  });
  Sweep sweep(plan);
  int64_t area = 0;  // Without overlaps it is at most the table's, 2^40 rows of 2^16.
  for (const size_t index : shards) {
    const size_t over = sweep.Add(index);
    if (over != index) {
      const auto [first, second] = std::minmax(over, index);
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

}  // namespace

Status CheckTiling(const Plan& plan, const Manifest& manifest, std::string_view file) {
  std::vector<std::vector<size_t>> shards_of(manifest.tables.size());
  for (size_t i = 0; i < plan.shards.size(); ++i) {
    shards_of[plan.shards[i].table].push_back(i);
  }
  for (size_t i = 0; i < manifest.tables.size(); ++i) {
    Status status = CheckTable(plan, manifest.tables[i], shards_of[i], file);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace embershard
