// Tensors of inference protocols, independent of the protocol, and the tensors that a model accepts
// and returns. See docs/protocols.md.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// Names of data types in KServe and Triton. Values are little endian.
inline constexpr std::string_view kFp32 = "FP32";
inline constexpr std::string_view kInt32 = "INT32";
inline constexpr std::string_view kInt64 = "INT64";

// One input of a request. Owns nothing.
struct InputTensor {
  std::string_view name;
  std::string_view datatype;
  std::span<const int64_t> shape;
  std::span<const std::string_view> buffers;  // Concatenated, they are the values row by row.
};

// A tensor of FP32. Owns only its shape.
struct OutputTensor {
  std::string_view name;
  std::vector<int64_t> shape;
  std::string_view bytes;
};

struct TensorSpec {
  std::string name;
  std::string_view datatype;
  std::vector<int64_t> shape;  // -1 for any size.
};

// Names of tensors that pack all inputs of a kind.
inline constexpr std::string_view kDense = "DENSE";
inline constexpr std::string_view kRequestDense = "REQUEST_DENSE";
inline constexpr std::string_view kLengths = "LENGTHS";
inline constexpr std::string_view kValues = "VALUES";
inline constexpr std::string_view kWeights = "WEIGHTS";

// Suffixes of a sparse input's name.
inline constexpr std::string_view kLengthsSuffix = ".lengths";
inline constexpr std::string_view kValuesSuffix = ".values";
inline constexpr std::string_view kWeightsSuffix = ".weights";

// The tensors of each input in the order of the schema, then the packed tensors. If two tensors
// have the same name, the model has only the first one.
std::vector<TensorSpec> InputSpecs(const Schema& schema);

// If the name begins with a sparse input's name, the error lists the tensors of that input, else
// all input tensors.
Status UnknownTensor(const Schema& schema, std::string_view name);

// Tensors in the order of the schema. Outputs in request scope have one row.
std::vector<TensorSpec> OutputSpecs(const Schema& schema);

}  // namespace embershard
