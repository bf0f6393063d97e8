// From the ids that clients send to rows of a table.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/unaligned.h"

namespace embershard {

// Stands for a zero vector, which still counts in a mean's divisor.
inline constexpr int64_t kZeroRow = -1;

// Implementations are immutable: any thread may call.
class IdMap {
 public:
  virtual ~IdMap() = default;

  // Writes ids.size() rows. An unknown id becomes the oov row or kZeroRow as its
  // policy says, and kZeroRow under `reject`, which request validation has checked before.
  // Returns how many ids were unknown.
  virtual size_t Map(Unaligned<int64_t> ids, int64_t* rows) const = 0;

  // Position of the first id that must be refused; ids.size() when there is none.
  // Cheap for policies that refuse nothing.
  virtual size_t FirstRefused(Unaligned<int64_t> ids) const = 0;
};

}  // namespace embershard
