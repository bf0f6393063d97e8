// What the lookup benchmarks look up: rows drawn at random, the same for every program.

#ifndef EMBERSHARD_BENCHMARKS_CPP_LOOKUP_BATCHES_H_
#define EMBERSHARD_BENCHMARKS_CPP_LOOKUP_BATCHES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "lookup/lookup.h"
#include "package/manifest.h"

namespace embershard {

// Of each table, drawn in advance in four batches or more: too many for the fast caches.
inline constexpr size_t kRowsDrawn = size_t{1} << 15;

// A batch for every sparse input: `bags` lists of `length` rows each.
class LookupBatch {
 public:
  LookupBatch(const Manifest& manifest, size_t bags, size_t length, std::mt19937_64& random)
      : offsets_(bags + 1) {
    for (size_t bag = 0; bag <= bags; ++bag) offsets_[bag] = static_cast<int64_t>(bag * length);
    for (const SparseInput& input : manifest.schema.sparse) {
      const int64_t rows = manifest.tables[input.lookups.front().table].rows;
      std::uniform_int_distribution<int64_t> draw(0, rows - 1);
      std::vector<int64_t>& drawn = rows_.emplace_back(bags * length);
      for (int64_t& row : drawn) row = draw(random);
    }
    for (const std::vector<int64_t>& drawn : rows_) {
      lists_.push_back({.rows = drawn.data(), .offsets = offsets_.data(), .weights = nullptr});
    }
  }

  LookupBatch(LookupBatch&&) = default;  // The lists point into vectors, which do not move.
  LookupBatch(const LookupBatch&) = delete;

  std::span<const JaggedRows> lists() const { return lists_; }

 private:
  std::vector<int64_t> offsets_;
  std::vector<std::vector<int64_t>> rows_;
  std::vector<JaggedRows> lists_;
};

// Always the same batches for the same arguments.
inline std::vector<LookupBatch> DrawLookupBatches(const Manifest& manifest, size_t bags,
                                                  size_t length) {
  std::mt19937_64 random(1);
  std::vector<LookupBatch> batches;
  const size_t n_of_batches = std::max<size_t>(4, kRowsDrawn / (bags * length));
  batches.reserve(n_of_batches);
  for (size_t i = 0; i < n_of_batches; ++i) batches.emplace_back(manifest, bags, length, random);
  return batches;
}

}  // namespace embershard

#endif  // EMBERSHARD_BENCHMARKS_CPP_LOOKUP_BATCHES_H_
