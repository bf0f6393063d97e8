// From rows to pooled vectors, over the devices of a plan.

#ifndef EMBERSHARD_LOOKUP_LOOKUP_H_
#define EMBERSHARD_LOOKUP_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace embershard {

// The merged lists of one sparse input, as rows of its tables.
struct JaggedRows {
  const int64_t* rows = nullptr;     // [total], kZeroRow allowed.
  const int64_t* offsets = nullptr;  // [bags + 1]
  const float* weights = nullptr;    // [total], or null where unweighted.
};

// A row-major matrix that a lookup fills: one row a bag, columns as
// LookupSpec::column says.
struct PooledMatrix {
  float* values = nullptr;
  size_t bags = 0;
  size_t columns = 0;
};

// Final implementations: FbgemmLookup.
class Lookup {
 public:
  virtual ~Lookup() = default;

  // Fills both matrices completely. `sparse` has one entry for each sparse input of
  // the schema. An empty bag gives zeros. One call at a time.
  virtual Status Run(std::span<const JaggedRows> sparse, PooledMatrix request,
                     PooledMatrix example) = 0;
};

}  // namespace embershard

#endif  // EMBERSHARD_LOOKUP_LOOKUP_H_
