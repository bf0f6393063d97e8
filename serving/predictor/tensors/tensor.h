// Tensors as inference protocols have them: a name, a type, a shape and bytes.
// Free of any protocol, so that its adapters share one mapping (tensors/tensor_map.h).

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace embershard
