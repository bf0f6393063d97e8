// The part of the safetensors format that packages use (docs/format.md).

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unaligned.h"

namespace embershard {

enum class TensorType { kU8, kI32, kI64, kF32 };

struct StoredTensor {
  TensorType type = TensorType::kU8;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // Bytes from the start of the data.
  uint64_t end = 0;
};

using StoredTensors = std::map<std::string, StoredTensor>;

inline constexpr size_t kSafetensorsPrefixBytes = 8;

// Maximum number of bytes before the data.
inline constexpr uint64_t kSafetensorsHeadBytesMax = kSafetensorsPrefixBytes + (uint64_t{16} << 20);

// Returns the length of the JSON header. `prefix`: the first kSafetensorsPrefixBytes of the file,
// or the whole file if it is shorter.
Result<uint64_t> ParseSafetensorsPrefix(std::string_view prefix, uint64_t file_bytes,
                                        std::string_view file);

// Fails if the data does not start at a multiple of `align`, or if the tensors do not fill the file
// exactly.
Result<StoredTensors> ParseSafetensorsHeader(std::string_view header, uint64_t file_bytes,
                                             uint64_t align, std::string_view file);

// Text such as "I64 [3, 20]".
std::string TensorText(TensorType type, const std::vector<uint64_t>& shape);

template <class T>
inline constexpr TensorType kTensorTypeOf = TensorType::kU8;
template <>
inline constexpr TensorType kTensorTypeOf<int32_t> = TensorType::kI32;
template <>
inline constexpr TensorType kTensorTypeOf<int64_t> = TensorType::kI64;
template <>
inline constexpr TensorType kTensorTypeOf<float> = TensorType::kF32;

// A whole file in memory, with its data at a multiple of 8 bytes. Errors name the tensor.
class Safetensors {
 public:
  static Result<Safetensors> Parse(std::string bytes, std::string_view file);

  const std::string& file() const { return file_; }
  const StoredTensors& tensors() const { return tensors_; }

  const StoredTensor* Find(const std::string& name) const;

  // Fails if the tensor is missing, or has another type or shape.
  Status CheckTensor(const std::string& name, TensorType type,
                     const std::vector<uint64_t>& shape) const;

  // Returns a view into this object, which must outlive it and must not be moved.
  // T: uint8_t, int32_t, int64_t or float.
  template <class T>
  Result<Unaligned<T>> Tensor(const std::string& name, const std::vector<uint64_t>& shape) const {
    RETURN_IF_ERROR(CheckTensor(name, kTensorTypeOf<T>, shape));
    const StoredTensor& tensor = *Find(name);
    return Unaligned<T>(bytes_.data() + data_start_ + tensor.begin,
                        (tensor.end - tensor.begin) / sizeof(T));
  }

 private:
  Safetensors() = default;

  std::string file_;
  std::string bytes_;
  uint64_t data_start_ = 0;
  StoredTensors tensors_;
};

}  // namespace embershard
