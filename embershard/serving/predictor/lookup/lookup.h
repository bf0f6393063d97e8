// Inputs and outputs of a lookup, which turns rows into pooled vectors and sequences.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace embershard {

// The merged lists of one sparse input, with ids converted to rows of its tables.
struct JaggedRows {
  const int64_t* rows = nullptr;     // [total], kZeroRow allowed.
  const int64_t* offsets = nullptr;  // [bags + 1]
  const float* weights = nullptr;    // [total], or null if unweighted.
};

// A row-major matrix with one row per bag or per id of a sequence.
struct LookupMatrix {
  float* values = nullptr;
  size_t bags = 0;
  size_t columns = 0;
};

struct LookupMatrices {
  // Pooled vectors. LookupSpec::column is the first column of each lookup.
  LookupMatrix request;
  LookupMatrix example;

  // One matrix for each of Schema::sequences, with a row for each id of the input.
  std::span<const LookupMatrix> sequences = {};
};

// Memory use, and counters since the device was created.
struct DeviceLoad {
  std::string name;          // Name in the plan, such as "cpu:0".
  uint64_t table_bytes = 0;  // Size of the rows on the device.
  uint64_t lookup_ns = 0;    // Total time of lookups.
  uint64_t batches = 0;
  uint64_t rows = 0;  // Number of rows looked up.

  // Zero for devices named cpu:N.
  uint64_t dense_ns = 0;      // Total time of the dense program.
  uint64_t copied_bytes = 0;  // Bytes copied to and from the device.
  uint64_t memory_bytes = 0;  // Memory in use now, for rows and the buffers of batches.
};

}  // namespace embershard
