// The part of a model behind its lookups: one exported program.

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

// One of Schema::sequences: a vector for each id of the batch.
struct SequenceInput {
  float* values = nullptr;           // [ids, dim]
  size_t ids = 0;                    // The last of offsets.
  const int64_t* offsets = nullptr;  // [R + 1 or B + 1], as its scope says.
};

// R requests, B examples; row-major; widths as the schema says.
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

// Final implementation: TorchScriptProgram. An interface, so that its users include no torch.
class DenseProgram {
 public:
  virtual ~DenseProgram() = default;

  // Writes the outputs of the schema, in order, each [R or B] x width. Inputs are read only. Calls
  // may run at the same time. kInternal, with the output's name: the program throws or returns a
  // wrong shape.
  virtual Status Run(const DenseProgramInputs& inputs,
                     std::vector<std::vector<float>>* outputs) = 0;
};

struct DenseProgramOptions {
  // Threads that one run may use inside torch. 0: CoreCount(). torch
  // keeps such a count for each thread: a thread that calls Run() is left with this one.
  int threads = 0;

  // Layers that the package rounds to bfloat16 keep their rounded weights, but take and return
  // float32. For processors that do not multiply bfloat16.
  bool float32_layers = false;
};

// The very bytes of a program's file that were checked. No program is loaded from its path: the
// file may be exchanged after it was checked.
struct ProgramBytes {
  std::string name;  // In the package, for messages.
  std::string bytes;
};

// Torch-free on this side. kBadPackage when the bytes are not a program of the shape
// that docs/format.md describes.
Result<std::unique_ptr<DenseProgram>> LoadTorchScriptProgram(ProgramBytes program,
                                                             const Schema& schema,
                                                             const DenseProgramOptions& options);

// Loads FBGEMM's operator libraries from `folder` (the installed fbgemm_gpu) into
// the process, for programs that use some. Safe to call more than once, from any thread.
Status LoadFbgemmOperators(const std::filesystem::path& folder);

}  // namespace embershard
