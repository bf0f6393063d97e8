// Maps the ids that clients send to rows of a table, and strings to ids.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/unaligned.h"
#include "package/manifest.h"
#include "package/vocabulary.h"

namespace embershard {

// Marks a zero vector. It still counts in the divisor of a mean.
inline constexpr int64_t kZeroRow = -1;

// Implementations are immutable, thus thread-safe.
class IdMap {
 public:
  virtual ~IdMap() = default;

  // Writes ids.size() rows. An unknown id becomes the oov row or kZeroRow, depending on the policy;
  // kZeroRow with `reject`, whose ids validation has checked. Returns the number of unknown ids.
  virtual size_t Map(Unaligned<int64_t> ids, int64_t* rows) const = 0;

  // Position of the first id that must be refused, or ids.size() if there is none.
  size_t FirstRefused(Unaligned<int64_t> ids) const;

 protected:
  explicit IdMap(bool rejects) : rejects_(rejects) {}

 private:
  const bool rejects_;
};

// Makes the map that `spec` describes:
//   identity    the id is the row
//   hash        XXH3-64 of the id's eight little-endian bytes with a seed, modulo rows
//   vocabulary  the row of the id in `vocabulary`, which the other kinds ignore
// A hash knows every id.
std::unique_ptr<IdMap> MakeIdMap(const IdMapSpec& spec,
                                 std::shared_ptr<const Vocabulary> vocabulary = nullptr);

// Number of ids that have a row of their own, which is all rows except the oov row.
inline int64_t KnownIds(const IdMapSpec& spec) {
  return spec.unknown == UnknownIds::kOov ? spec.rows - 1 : spec.rows;
}

inline int64_t UnknownRow(const IdMapSpec& spec) {
  return spec.unknown == UnknownIds::kOov ? spec.oov_row : kZeroRow;
}

// The id of a string: XXH3-64 of its UTF-8 bytes. Every client computes the same.
int64_t HashString(std::string_view utf8);

}  // namespace embershard
