// Tensors as inference protocols have them, free of any protocol, and which of them a model takes
// and gives. docs/protocols.md is the manual.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// Types as KServe and Triton write them. Values are little endian.
inline constexpr std::string_view kFp32 = "FP32";
inline constexpr std::string_view kInt32 = "INT32";
inline constexpr std::string_view kInt64 = "INT64";

// One input of a request. Owns nothing.
struct InputTensor {
  std::string_view name;
  std::string_view datatype;
  std::span<const int64_t> shape;
  std::span<const std::string_view> buffers;  // Its bytes, row by row, concatenated.
};

// One output of an answer. Owns its shape alone.
struct OutputTensor {
  std::string_view name;  // Of datatype FP32.
  std::vector<int64_t> shape;
  std::string_view bytes;
};

// What a model says of one of its tensors.
struct TensorSpec {
  std::string name;
  std::string_view datatype;
  std::vector<int64_t> shape;  // -1: of any size.
};

// What packs all inputs of a kind.
inline constexpr std::string_view kDense = "DENSE";
inline constexpr std::string_view kRequestDense = "REQUEST_DENSE";
inline constexpr std::string_view kLengths = "LENGTHS";
inline constexpr std::string_view kValues = "VALUES";
inline constexpr std::string_view kWeights = "WEIGHTS";

// Behind the name of a sparse input.
inline constexpr std::string_view kLengthsSuffix = ".lengths";
inline constexpr std::string_view kValuesSuffix = ".values";
inline constexpr std::string_view kWeightsSuffix = ".weights";

// Those by input in the order of the schema, then those that pack what the model has. A model with
// an input whose own tensor is called like a later one does not have that one.
std::vector<TensorSpec> InputSpecs(const Schema& schema);

// Why a model has no input tensor of this name: it lists those of the sparse input that the name
// begins with, else all by input.
Status UnknownTensor(const Schema& schema, std::string_view name);

// In the order of the schema. Outputs in request scope have one row.
std::vector<TensorSpec> OutputSpecs(const Schema& schema);

}  // namespace embershard
