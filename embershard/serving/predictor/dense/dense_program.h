// The part of a model after its lookups, which is one exported program.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// One of Schema::sequences, with a vector for each id of the batch.
struct SequenceInput {
  float* values = nullptr;           // [ids, dim]
  size_t ids = 0;                    // Equals the last offset.
  const int64_t* offsets = nullptr;  // [R + 1] in request scope, [B + 1] in example scope.
};

// Inputs of R requests and B examples, row-major. The schema has the widths.
struct DenseProgramInputs {
  size_t requests = 0;
  size_t examples = 0;
  float* request_dense = nullptr;                 // [R, request_dense_columns]
  float* request_pooled = nullptr;                // [R, request_pooled_columns]
  float* example_dense = nullptr;                 // [B, example_dense_columns]
  float* example_pooled = nullptr;                // [B, example_pooled_columns]
  const int64_t* request_of_example = nullptr;    // [B]
  std::span<const SequenceInput> sequences = {};  // One for each of Schema::sequences.
};

// TorchScriptProgram implements this. An interface, so that its users need not include torch.
class DenseProgram {
 public:
  virtual ~DenseProgram() = default;

  // Writes the outputs in the order of the schema, each [R or B] x width. Does not write to inputs.
  // Thread-safe. Fails with kInternal if the program throws or returns a wrong shape.
  virtual Status Run(const DenseProgramInputs& inputs,
                     std::vector<std::vector<float>>* outputs) = 0;
};

struct DenseProgramOptions {
  // Number of threads that torch may use for one run. 0: CoreCount(). torch keeps this number for
  // each calling thread, so Run() changes it there.
  int threads = 0;

  // Layers that the package rounds to bfloat16 keep their rounded weights, but their inputs and
  // outputs are float32. For processors that cannot multiply bfloat16.
  bool float32_layers = false;
};

// The checked bytes of a file, which may be replaced after it was checked.
struct ProgramBytes {
  std::string name;  // File name in the package, for messages.
  std::string bytes;
};

// Fails with kBadPackage if the bytes are not a program that docs/format.md describes.
Result<std::unique_ptr<DenseProgram>> LoadTorchScriptProgram(ProgramBytes program,
                                                             const Schema& schema,
                                                             const DenseProgramOptions& options);

// `folder` is that of fbgemm_gpu. Thread-safe, and may be called more than once.
Status LoadFbgemmOperators(const std::filesystem::path& folder);

}  // namespace embershard
