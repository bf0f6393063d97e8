#include <algorithm>
#include <array>
#include <utility>

#include "package/id_maps.h"

namespace embershard {
namespace {

class VocabMap final : public IdMap {
 public:
  VocabMap(const IdMapSpec& spec, std::shared_ptr<const Vocabulary> vocabulary)
      : vocabulary_(std::move(vocabulary)),
        unknown_row_(UnknownRow(spec)),
        rejects_(spec.unknown == UnknownIds::kReject) {}

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

  size_t FirstRefused(Unaligned<int64_t> ids) const override {
    if (!rejects_) return ids.size();
    // In runs: FindAll() fetches their memory together, and a bad one ends it early.
    constexpr size_t kRun = 256;
    std::array<int64_t, kRun> rows;
    for (size_t first = 0; first < ids.size(); first += kRun) {
      const size_t count = std::min(kRun, ids.size() - first);
      vocabulary_->FindAll(ids.Slice(first, count), rows.data());
      const auto end = rows.begin() + count;
      const auto unknown = std::find(rows.begin(), end, kZeroRow);
      if (unknown != end) return first + static_cast<size_t>(unknown - rows.begin());
    }
    return ids.size();
  }

 private:
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const int64_t unknown_row_;
  const bool rejects_;
};

}  // namespace

std::unique_ptr<IdMap> MakeVocabMap(const IdMapSpec& spec,
                                    std::shared_ptr<const Vocabulary> vocabulary) {
  return std::make_unique<VocabMap>(spec, std::move(vocabulary));
}

}  // namespace embershard
