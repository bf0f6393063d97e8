// The kinds of id map there are, each in a file of its own.

#ifndef EMBERSHARD_PACKAGE_ID_MAPS_H_
#define EMBERSHARD_PACKAGE_ID_MAPS_H_

#include <memory>

#include "package/id_map.h"
#include "package/manifest.h"
#include "package/vocabulary.h"

namespace embershard {

// The id is the row. id_map_identity.cc
std::unique_ptr<IdMap> MakeIdentityMap(const IdMapSpec& spec);

// XXH3-64 of the id's eight little-endian bytes, with a seed, modulo rows. Knows every
// id. id_map_hash.cc
std::unique_ptr<IdMap> MakeHashMap(const IdMapSpec& spec);

// The row that the vocabulary gives. id_map_vocab.cc
std::unique_ptr<IdMap> MakeVocabMap(const IdMapSpec& spec,
                                    std::shared_ptr<const Vocabulary> vocabulary);

// Ids that have a row of their own: all rows but the oov row.
inline int64_t KnownIds(const IdMapSpec& spec) {
  return spec.unknown == UnknownIds::kOov ? spec.rows - 1 : spec.rows;
}

// The row of an unknown id.
inline int64_t UnknownRow(const IdMapSpec& spec) {
  return spec.unknown == UnknownIds::kOov ? spec.oov_row : kZeroRow;
}

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_ID_MAPS_H_
