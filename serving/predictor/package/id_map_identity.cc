#include "package/id_maps.h"

namespace embershard {
namespace {

class IdentityMap final : public IdMap {
 public:
  explicit IdentityMap(const IdMapSpec& spec)
      : known_(static_cast<uint64_t>(KnownIds(spec))),
        unknown_row_(UnknownRow(spec)),
        rejects_(spec.unknown == UnknownIds::kReject) {}

  size_t Map(Unaligned<int64_t> ids, int64_t* rows) const override {
    size_t unknown = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t id = ids[i];
      const bool known = IsKnown(id);
      rows[i] = known ? id : unknown_row_;
      unknown += !known;
    }
    return unknown;
  }

  size_t FirstRefused(Unaligned<int64_t> ids) const override {
    if (!rejects_) return ids.size();
    size_t i = 0;
    while (i < ids.size() && IsKnown(ids[i])) ++i;
    return i;
  }

 private:
  // Negative ids are larger than any row when seen as unsigned.
  bool IsKnown(int64_t id) const { return static_cast<uint64_t>(id) < known_; }

  const uint64_t known_;
  const int64_t unknown_row_;
  const bool rejects_;
};

}  // namespace

std::unique_ptr<IdMap> MakeIdentityMap(const IdMapSpec& spec) {
  return std::make_unique<IdentityMap>(spec);
}

}  // namespace embershard
