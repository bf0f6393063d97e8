// What max_ids leaves of a list. Ids cut away are never checked, counted or looked up.

#pragma once

#include <cstddef>

#include "package/manifest.h"

namespace embershard {

// A run of a list's ids.
struct IdRange {
  size_t first = 0;
  size_t count = 0;
};

// The ids that count of a list of `length`. Under Keep::kReject validation has
// refused longer lists.
inline IdRange Truncate(const SparseInput& input, size_t length) {
  if (input.max_ids == 0 || length <= input.max_ids) return {0, length};
  return {input.keep == Keep::kLast ? length - input.max_ids : 0, input.max_ids};
}

// How many lists a request has for an input of this scope.
inline size_t ListCount(Scope scope, size_t num_examples) {
  return scope == Scope::kRequest ? 1 : num_examples;
}

}  // namespace embershard
