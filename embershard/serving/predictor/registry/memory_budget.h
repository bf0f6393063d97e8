// How much memory the loaded versions may take.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "package/package.h"

namespace embershard {

// What the loaded versions take of the memory, and whether one more fits.
//
// Memory is taken from a claim on until its last copy has gone: by versions that are served, by
// those that still drain, and by loads that were given up. Parts that several have count once.
// Not thread-safe, but copies of a claim may go on any thread.
class MemoryBudget {
 public:
  using Claim = std::shared_ptr<const MemoryParts>;
  enum class Holder { kServed, kDraining, kGivenUp };

  // 0: no limit.
  explicit MemoryBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // kResourceExhausted, with what takes how much, where it does not fit.
  Result<Claim> Take(MemoryParts parts);

  // Who has the claim from now on.
  void SetHolder(const Claim& claim, Holder holder);

  // Whether versions that drain will give memory back.
  bool is_draining() const;

 private:
  struct Entry {
    std::weak_ptr<const MemoryParts> claim;
    Holder holder = Holder::kServed;
  };

  // Adds the parts of what `holder` has to `taken`; the bytes of those that are new there.
  uint64_t AddParts(Holder holder, MemoryParts* taken) const;

  const uint64_t bytes_max_;
  std::vector<Entry> entries_;
};

}  // namespace embershard
