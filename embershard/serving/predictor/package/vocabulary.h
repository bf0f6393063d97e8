// The keys and rows of one ids/<name>.safetensors (docs/format.md).

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unaligned.h"
#include "package/safetensors.h"

namespace embershard {

// Finds a key in about one step if keys are evenly spread, as consecutive ids and hashes are. The
// range of keys is cut into about as many equal buckets as there are keys, and each search bisects
// one bucket. Immutable, thus thread-safe.
class Vocabulary {
 public:
  // `bytes`: the whole file. Fails if it has anything but keys and rows of the format.
  static Result<std::shared_ptr<const Vocabulary>> Parse(std::string bytes, std::string_view file);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  size_t size() const { return keys_.size(); }

  // Row of `key`, or kZeroRow if it is unknown.
  int64_t Find(int64_t key) const;

  // Is faster than Find() for many keys, because it prefetches their memory.
  void FindAll(Unaligned<int64_t> keys, int64_t* rows) const;

 private:
  explicit Vocabulary(Safetensors data) : data_(std::move(data)) {}
  Status View();
  Status Check() const;
  void Index();

  // Distance from the first key, computed with unsigned numbers so that it cannot overflow.
  uint64_t FromFirst(int64_t key) const {
    return static_cast<uint64_t>(key) - static_cast<uint64_t>(first_key_);
  }

  bool InRange(int64_t key) const { return key >= first_key_ && key <= last_key_; }
  size_t BucketOf(int64_t key) const { return FromFirst(key) >> shift_; }

  const Safetensors data_;
  Unaligned<int64_t> keys_;  // A view into data_.
  Unaligned<int64_t> rows_;  // A view into data_.
  int64_t first_key_ = 0;
  int64_t last_key_ = 0;
  int shift_ = 0;
  std::vector<uint32_t> buckets_;  // First position of each bucket's keys, then the end of all.
};

}  // namespace embershard
