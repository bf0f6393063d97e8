// From rows to pooled vectors and sequences, over the devices of a plan.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace embershard {

// The merged lists of one sparse input, as rows of its tables.
struct JaggedRows {
  const int64_t* rows = nullptr;     // [total], kZeroRow allowed.
  const int64_t* offsets = nullptr;  // [bags + 1]
  const float* weights = nullptr;    // [total], or null where unweighted.
};

// A row-major matrix that a lookup fills: one row a bag, or an id of a sequence.
struct LookupMatrix {
  float* values = nullptr;
  size_t bags = 0;
  size_t columns = 0;
};

struct LookupMatrices {
  // Pooled vectors, in the columns that LookupSpec::column says.
  LookupMatrix request;
  LookupMatrix example;

  // Of Schema::sequences, in its order: the vectors of all ids of the input, one below another.
  std::span<const LookupMatrix> sequences = {};
};

// What one device holds, and has done since it was made.
struct DeviceLoad {
  std::string name;          // "cpu:0", as in the plan.
  uint64_t table_bytes = 0;  // Of the rows that lie on it.
  uint64_t lookup_ns = 0;    // Sum of the time its lookups took.
  uint64_t batches = 0;
  uint64_t rows = 0;  // Looked up.
};

// Final implementations: ShardedLookup.
class Lookup {
 public:
  virtual ~Lookup() = default;

  // Fills the matrices completely. `sparse` has one entry for each sparse input of
  // the schema. An empty bag gives zeros, and so does kZeroRow in a sequence; every other
  // vector of a sequence is the row's float(scale * code + bias). One call at a time.
  virtual Status Run(std::span<const JaggedRows> sparse, const LookupMatrices& out) = 0;

  // Those that tables lie on, in the plan's order. Any thread, at any time.
  virtual std::vector<DeviceLoad> device_loads() const { return {}; }
};

}  // namespace embershard
