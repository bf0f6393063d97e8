#include "package/vocabulary.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "package/id_maps.h"
#include "package/refusal.h"

namespace embershard {

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Parse(std::string bytes,
                                                            std::string_view file) {
  ASSIGN_OR_RETURN(Safetensors data, Safetensors::Parse(std::move(bytes), file));
  std::shared_ptr<Vocabulary> vocabulary(new Vocabulary(std::move(data)));
  RETURN_IF_ERROR(vocabulary->View());
  RETURN_IF_ERROR(vocabulary->Check());
  vocabulary->Index();
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
}

Status Vocabulary::View() {
  for (const auto& [name, tensor] : data_.tensors()) {
    if (name != "keys" && name != "rows") return Unexpected(data_.file(), name, "tensor");
  }
  const StoredTensor* stored = data_.Find("keys");
  const uint64_t ids = stored == nullptr || stored->shape.empty() ? 1 : stored->shape[0];
  if (ids == 0 || ids > std::numeric_limits<uint32_t>::max()) {
    return Refusal(data_.file(), "keys", "1 .. 4294967295 ids", std::to_string(ids));
  }
  ASSIGN_OR_RETURN(keys_, data_.Tensor<int64_t>("keys", {ids}));
  ASSIGN_OR_RETURN(rows_, data_.Tensor<int64_t>("rows", {ids}));
  return {};
}

Status Vocabulary::Check() const {
  for (size_t i = 1; i < keys_.size(); ++i) {
    if (keys_[i] <= keys_[i - 1]) {
      return Refusal(data_.file(), "keys", "strictly increasing ids",
                     std::to_string(keys_[i - 1]) + " and then " + std::to_string(keys_[i]) +
                         " at position " + std::to_string(i));
    }
  }
  std::vector<bool> seen(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    const auto row = static_cast<uint64_t>(rows_[i]);
    if (row >= seen.size()) {
      return Refusal(data_.file(), "rows", "rows of 0 .. " + std::to_string(seen.size() - 1),
                     std::to_string(rows_[i]) + " at position " + std::to_string(i));
    }
    if (seen[row]) {
      return Refusal(data_.file(), "rows", "every row once",
                     std::to_string(row) + " again at position " + std::to_string(i));
    }
    seen[row] = true;
  }
  return {};
}

void Vocabulary::Index() {
  first_key_ = keys_[0];
  last_key_ = keys_[keys_.size() - 1];
  const uint64_t span = FromFirst(last_key_);
  while ((span >> shift_) >= 2 * keys_.size()) ++shift_;
  buckets_.resize((span >> shift_) + 2);
  size_t bucket = 0;  // The first bucket whose begin is not set yet.
  for (size_t i = 0; i < keys_.size(); ++i) {
    const size_t own = BucketOf(keys_[i]);
    while (bucket <= own) buckets_[bucket++] = static_cast<uint32_t>(i);
  }
  buckets_[bucket] = static_cast<uint32_t>(keys_.size());
}

int64_t Vocabulary::Find(int64_t key) const {
  if (!InRange(key)) return kZeroRow;
  const size_t bucket = BucketOf(key);
  size_t begin = buckets_[bucket];
  size_t end = buckets_[bucket + 1];
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    const int64_t middle_key = keys_[middle];
    if (middle_key == key) return rows_[middle];
    if (middle_key < key) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return kZeroRow;
}

// A search waits for memory twice: for its bucket, then for its key and row. A group of searches
// waits at the same time.
void Vocabulary::FindAll(Unaligned<int64_t> keys, int64_t* rows) const {
  constexpr size_t kGroup = 32;
  for (size_t first = 0; first < keys.size(); first += kGroup) {
    const size_t end = std::min(first + kGroup, keys.size());
    for (size_t i = first; i < end; ++i) {
      if (InRange(keys[i])) __builtin_prefetch(&buckets_[BucketOf(keys[i])]);
    }
    for (size_t i = first; i < end; ++i) {
      if (!InRange(keys[i])) continue;
      const size_t begin = buckets_[BucketOf(keys[i])];
      __builtin_prefetch(keys_.bytes() + begin * sizeof(int64_t));
      __builtin_prefetch(rows_.bytes() + begin * sizeof(int64_t));
    }
    for (size_t i = first; i < end; ++i) rows[i] = Find(keys[i]);
  }
}

}  // namespace embershard
