#define XXH_INLINE_ALL
#include <xxhash.h>

#include "package/id_maps.h"

namespace embershard {
namespace {

class HashMap final : public IdMap {
 public:
  explicit HashMap(const IdMapSpec& spec)
      : rows_(static_cast<uint64_t>(spec.rows)), seed_(spec.seed) {}

  size_t Map(Unaligned<int64_t> ids, int64_t* rows) const override {
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t id = ids[i];
      rows[i] = static_cast<int64_t>(XXH3_64bits_withSeed(&id, sizeof(id), seed_) % rows_);
    }
    return 0;
  }

  size_t FirstRefused(Unaligned<int64_t> ids) const override { return ids.size(); }

 private:
  const uint64_t rows_;
  const uint64_t seed_;
};

}  // namespace

std::unique_ptr<IdMap> MakeHashMap(const IdMapSpec& spec) {
  return std::make_unique<HashMap>(spec);
}

}  // namespace embershard
