#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "package/package.h"

namespace embershard {

// Memory counts from the claim until the claim's last copy is destroyed: for served versions, for
// draining ones, and for abandoned loads. Parts that several versions share count once. Not
// thread-safe, except that copies of a claim may be destroyed on any thread.
class MemoryBudget {
 public:
  using Claim = std::shared_ptr<const MemoryParts>;
  enum class Holder { kServed, kDraining, kGivenUp };

  // 0: no limit.
  explicit MemoryBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Claims memory. kResourceExhausted, with a list of what uses how much, if it does not fit.
  Result<Claim> Take(MemoryParts parts);

  void SetHolder(const Claim& claim, Holder holder);

  // True if draining versions will free memory.
  bool is_draining() const;

 private:
  struct Entry {
    std::weak_ptr<const MemoryParts> claim;
    Holder holder = Holder::kServed;
  };

  // Returns the bytes of parts of `holder` that were not in `taken`.
  uint64_t AddParts(Holder holder, MemoryParts* taken) const;

  const uint64_t bytes_max_;
  std::vector<Entry> entries_;
};

}  // namespace embershard
