// Truncates lists to max_ids. Ids beyond it are never checked, counted or looked up.

#pragma once

#include <cstddef>

#include "package/manifest.h"

namespace embershard {

struct IdRange {
  size_t first = 0;
  size_t count = 0;
};

// With Keep::kReject, validation has refused lists that are too long.
inline IdRange Truncate(const SparseInput& input, size_t length) {
  if (input.max_ids == 0 || length <= input.max_ids) return {0, length};
  return {input.keep == Keep::kLast ? length - input.max_ids : 0, input.max_ids};
}

inline size_t ListCount(Scope scope, size_t num_examples) {
  return scope == Scope::kRequest ? 1 : num_examples;
}

}  // namespace embershard
