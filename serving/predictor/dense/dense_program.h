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

// Final implementations: TorchScriptProgram, AotProgram.
class DenseProgram {
 public:
  virtual ~DenseProgram() = default;

  // Writes the outputs of the schema, in order, each [R or B] x width. Inputs are read only. As
  // many calls at a time as it was loaded for. A program that throws or gives a wrong shape is
  // answered kInternal with the output's name.
  virtual Status Run(const DenseProgramInputs& inputs,
                     std::vector<std::vector<float>>* outputs) = 0;
};

struct DenseProgramOptions {
  // Threads that one run may use inside torch. 0: CoreCount(). torch
  // keeps such a count for each thread: a thread that calls Run() is left with this one.
  int threads = 0;

  // Runs at a time, at least 1.
  int slots = 1;

  // Of TorchScript. Layers that the package rounds to bfloat16 keep their rounded weights, and take
  // and give float32: for processors that multiply no bfloat16.
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

// A program that AOTInductor compiled: `embershard compile` makes them. Unpacks the bytes into a
// new folder below the one for temporary files, which this user alone may enter, and loads the
// library in it. kBadPackage when they are not a program of the shape that docs/format.md
// describes. REQUIRES: this version of torch and a processor like this compiled it (ChooseProgram):
// another's may end the process.
Result<std::unique_ptr<DenseProgram>> LoadAotProgram(ProgramBytes program, const Schema& schema,
                                                     const DenseProgramOptions& options);

// Of the torch in this process, as a manifest states it: "2.13.0".
std::string TorchVersion();

// Loads FBGEMM's operator libraries from `folder` (the installed fbgemm_gpu) into
// the process, for programs that use some. Safe to call more than once, from any thread.
Status LoadFbgemmOperators(const std::filesystem::path& folder);

}  // namespace embershard
