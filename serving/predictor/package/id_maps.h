// The kinds of id map, and the id that a string stands for.

#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "package/id_map.h"
#include "package/manifest.h"
#include "package/vocabulary.h"

namespace embershard {

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
