// What a lookup takes and gives: from rows to pooled vectors and sequences.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

  // Zero for devices named cpu:N.
  uint64_t dense_ns = 0;      // Sum of the time that the dense program took.
  uint64_t copied_bytes = 0;  // To and from the device.
  uint64_t memory_bytes = 0;  // Held now: rows and the buffers of batches.
};

}  // namespace embershard
