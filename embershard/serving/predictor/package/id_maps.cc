#include "package/id_maps.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

namespace embershard {
namespace {

constexpr size_t kRun = 256;  // Number of ids that are checked together.

class IdentityMap final : public IdMap {
 public:
  explicit IdentityMap(const IdMapSpec& spec)
      : IdMap(spec.unknown == UnknownIds::kReject),
        known_(static_cast<uint64_t>(KnownIds(spec))),
        unknown_row_(UnknownRow(spec)) {}

  size_t Map(Unaligned<int64_t> ids, int64_t* rows) const override {
    size_t unknown = 0;
    for (size_t begin = 0; begin < ids.size(); begin += kRun) {
      const auto run = ids.Slice(begin, std::min(kRun, ids.size() - begin));
      if (AreKnown(run)) {
        run.CopyTo(rows + begin);
        continue;
      }
      for (size_t i = 0; i < run.size(); ++i) {
        const bool known = IsKnown(run[i]);
        rows[begin + i] = known ? run[i] : unknown_row_;
        unknown += !known;
      }
    }
    return unknown;
  }

 private:
  // Negative ids become larger than any row when they are read as unsigned numbers.
  bool IsKnown(int64_t id) const { return static_cast<uint64_t>(id) < known_; }

  // Collects sign bits without a branch, so that compilers vectorize the loop.
  bool AreKnown(Unaligned<int64_t> ids) const {
    uint64_t outside = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto id = static_cast<uint64_t>(ids[i]);
      outside |= id | (known_ - 1 - id);
    }
    return (outside >> 63) == 0;
  }

  const uint64_t known_;
  const int64_t unknown_row_;
};

class HashMap final : public IdMap {
 public:
  explicit HashMap(const IdMapSpec& spec)
      : IdMap(false), rows_(static_cast<uint64_t>(spec.rows)), seed_(spec.seed) {}

  size_t Map(Unaligned<int64_t> ids, int64_t* rows) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t id = ids[i];
      rows[i] = static_cast<int64_t>(XXH3_64bits_withSeed(&id, sizeof(id), seed_) % rows_);
    }
    return 0;
  }

 private:
  const uint64_t rows_;
  const uint64_t seed_;
};

class VocabMap final : public IdMap {
 public:
  VocabMap(const IdMapSpec& spec, std::shared_ptr<const Vocabulary> vocabulary)
      : IdMap(spec.unknown == UnknownIds::kReject),
        vocabulary_(std::move(vocabulary)),
        unknown_row_(UnknownRow(spec)) {}

  size_t Map(Unaligned<int64_t> ids, int64_t* rows) const override {
    vocabulary_->FindAll(ids, rows);
    size_t unknown = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (rows[i] != kZeroRow) continue;
      rows[i] = unknown_row_;
      ++unknown;
    }
    return unknown;
  }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const int64_t unknown_row_;
};

}  // namespace

// Maps are faster for many ids, so this maps runs of them up to the first with an unknown id.
size_t IdMap::FirstRefused(Unaligned<int64_t> ids) const {
  std::array<int64_t, kRun> rows;
  for (size_t first = 0; rejects_ && first < ids.size(); first += kRun) {
    const size_t count = std::min(kRun, ids.size() - first);
    if (Map(ids.Slice(first, count), rows.data()) == 0) continue;
    return first + static_cast<size_t>(std::ranges::find(rows, kZeroRow) - rows.begin());
  }
  return ids.size();
}

std::unique_ptr<IdMap> MakeIdMap(const IdMapSpec& spec,
                                 std::shared_ptr<const Vocabulary> vocabulary) {
  switch (spec.kind) {
    case IdMapKind::kIdentity:
      return std::make_unique<IdentityMap>(spec);
    case IdMapKind::kHash:
      return std::make_unique<HashMap>(spec);
    case IdMapKind::kVocab:
      return std::make_unique<VocabMap>(spec, std::move(vocabulary));
  }
  return nullptr;
}

int64_t HashString(std::string_view utf8) {
  return static_cast<int64_t>(XXH3_64bits(utf8.data(), utf8.size()));
}

}  // namespace embershard
