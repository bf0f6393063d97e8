// From the ids that clients send to rows of a table, and the id that a string stands for.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/unaligned.h"
#include "package/manifest.h"
#include "package/vocabulary.h"

namespace embershard {

// Stands for a zero vector, which still counts in a mean's divisor.
inline constexpr int64_t kZeroRow = -1;

// Implementations are immutable: any thread may call.
class IdMap {
 public:
  virtual ~IdMap() = default;

  // Writes ids.size() rows. An unknown id becomes the oov row or kZeroRow as its
  // policy says, and kZeroRow under `reject`, which request validation has checked before.
  // Returns how many ids were unknown.
  virtual size_t Map(Unaligned<int64_t> ids, int64_t* rows) const = 0;

  // Position of the first id that must be refused; ids.size() when there is none.
  // Cheap for policies that refuse nothing.
  size_t FirstRefused(Unaligned<int64_t> ids) const;

 protected:
  // `rejects`: whether unknown ids are refused.
  explicit IdMap(bool rejects) : rejects_(rejects) {}

 private:
  const bool rejects_;
};

// The map that `spec` describes. Identity: the id is the row. Hash: XXH3-64 of the id's eight
// little-endian bytes, with a seed, modulo rows; knows every id. Vocabulary: the row that
// `vocabulary` gives, which the other kinds do not look at.
std::unique_ptr<IdMap> MakeIdMap(const IdMapSpec& spec,
                                 std::shared_ptr<const Vocabulary> vocabulary = nullptr);

// Ids that have a row of their own: all rows but the oov row.
inline int64_t KnownIds(const IdMapSpec& spec) {
  return spec.unknown == UnknownIds::kOov ? spec.rows - 1 : spec.rows;
}

// The row of an unknown id.
inline int64_t UnknownRow(const IdMapSpec& spec) {
  return spec.unknown == UnknownIds::kOov ? spec.oov_row : kZeroRow;
}

// The id that stands for a string: XXH3-64 of its UTF-8, as every client computes it.
int64_t HashString(std::string_view utf8);

}  // namespace embershard
