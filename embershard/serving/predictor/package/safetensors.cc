#include "package/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "package/json.h"
#include "package/refusal.h"

namespace embershard {
namespace {

constexpr uint64_t kHeaderBytesMax = kSafetensorsHeadBytesMax - kSafetensorsPrefixBytes;
constexpr uint64_t kSizeMax = (uint64_t{1} << 48) - 1;
constexpr size_t kDimensionsMax = 4;

struct TypeInfo {
  const char* name;
  uint64_t bytes;
};

TypeInfo InfoOf(TensorType type) {
  switch (type) {
    case TensorType::kU8:
      return {"U8", 1};
    case TensorType::kI32:
      return {"I32", 4};
    case TensorType::kI64:
      return {"I64", 8};
    case TensorType::kF32:
      return {"F32", 4};
  }
  return {"", 0};
}

// UINT64_MAX, which is larger than any file, if the size does not fit into 64 bits.
uint64_t TensorBytes(const StoredTensor& tensor) {
  if (std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end()) return 0;
  uint64_t bytes = InfoOf(tensor.type).bytes;
  for (const uint64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return UINT64_MAX;
  }
  return bytes;
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (const uint64_t size : shape) {
    text.append(text.size() > 1 ? ", " : "").append(std::to_string(size));
  }
  return text + "]";
}

StoredTensor ReadTensor(const JsonValue& value) {
  value.ExpectKeys({"dtype", "shape", "data_offsets"});
  StoredTensor tensor;
  tensor.type = value["dtype"].Choice<TensorType>({{"U8", TensorType::kU8},
                                                   {"I32", TensorType::kI32},
                                                   {"I64", TensorType::kI64},
                                                   {"F32", TensorType::kF32}});
  for (const JsonValue& size : value["shape"].Elements()) {
    tensor.shape.push_back(size.Unsigned(0, kSizeMax));
  }
  if (tensor.shape.size() > kDimensionsMax) value["shape"].Refuse("at most 4 dimensions");
  const std::vector<JsonValue> offsets = value["data_offsets"].Elements();
  if (offsets.size() != 2) {
    value["data_offsets"].Refuse("a begin and an end");
    return tensor;
  }
  tensor.begin = offsets[0].Unsigned(0, kSizeMax);
  tensor.end = offsets[1].Unsigned(0, kSizeMax);
  return tensor;
}

Status CheckFilled(const StoredTensors& tensors, uint64_t data_bytes, std::string_view file) {
  std::vector<const StoredTensors::value_type*> ordered;
  for (const auto& entry : tensors) ordered.push_back(&entry);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  uint64_t end = 0;
  for (const auto* entry : ordered) {
    const auto& [name, tensor] = *entry;
    const uint64_t bytes = TensorBytes(tensor);
    if (tensor.begin != end || tensor.end < tensor.begin || tensor.end - tensor.begin != bytes) {
      return Refusal(file, name + ".data_offsets",
                     std::to_string(bytes) + " bytes from " + std::to_string(end) + " on",
                     ShapeText({tensor.begin, tensor.end}));
    }
    end = tensor.end;
  }
  if (end == data_bytes) return {};
  return Refusal(file, "header", std::to_string(end) + " bytes of data",
                 std::to_string(data_bytes));
}

}  // namespace

std::string TensorText(TensorType type, const std::vector<uint64_t>& shape) {
  return std::string(InfoOf(type).name) + " " + ShapeText(shape);
}

Result<uint64_t> ParseSafetensorsPrefix(std::string_view prefix, uint64_t file_bytes,
                                        std::string_view file) {
  if (prefix.size() < kSafetensorsPrefixBytes || file_bytes < kSafetensorsPrefixBytes) {
    return Refusal(file, "header", "8 bytes and more", std::to_string(file_bytes));
  }
  uint64_t header_bytes;
  std::memcpy(&header_bytes, prefix.data(), sizeof(header_bytes));
  const uint64_t room = std::min(file_bytes - kSafetensorsPrefixBytes, kHeaderBytesMax);
  if (header_bytes < 2 || header_bytes > room) {
    return Refusal(file, "header", "2 .. " + std::to_string(room) + " bytes of header",
                   std::to_string(header_bytes));
  }
  return header_bytes;
}

Result<StoredTensors> ParseSafetensorsHeader(std::string_view header, uint64_t file_bytes,
                                             uint64_t align, std::string_view file) {
  nlohmann::json document;
  RETURN_IF_ERROR(ParseJson(header, file, &document));
  FirstRefusal refusal(file);
  StoredTensors tensors;
  for (const auto& [name, value] : JsonValue(document, &refusal).Members()) {
    tensors.emplace(name, ReadTensor(value));
  }
  if (!refusal.ok()) return refusal.status();

  const uint64_t data_start = kSafetensorsPrefixBytes + header.size();
  if (data_start % align != 0) {
    return Refusal(file, "header", "data at a multiple of " + std::to_string(align),
                   std::to_string(data_start));
  }
  RETURN_IF_ERROR(CheckFilled(tensors, file_bytes - data_start, file));
  return tensors;
}

Result<Safetensors> Safetensors::Parse(std::string bytes, std::string_view file) {
  constexpr uint64_t kAlign = 8;
  ASSIGN_OR_RETURN(uint64_t header_bytes, ParseSafetensorsPrefix(bytes, bytes.size(), file));
  const std::string_view header =
      std::string_view(bytes).substr(kSafetensorsPrefixBytes, header_bytes);
  ASSIGN_OR_RETURN(StoredTensors tensors,
                   ParseSafetensorsHeader(header, bytes.size(), kAlign, file));
  Safetensors parsed;
  parsed.data_start_ = kSafetensorsPrefixBytes + header_bytes;
  parsed.file_ = file;
  parsed.bytes_ = std::move(bytes);
  parsed.tensors_ = std::move(tensors);
  return parsed;
}

const StoredTensor* Safetensors::Find(const std::string& name) const {
  const auto entry = tensors_.find(name);
  return entry == tensors_.end() ? nullptr : &entry->second;
}

Status Safetensors::CheckTensor(const std::string& name, TensorType type,
                                const std::vector<uint64_t>& shape) const {
  const StoredTensor* tensor = Find(name);
  if (tensor != nullptr && tensor->type == type && tensor->shape == shape) return {};
  return Refusal(file_, name, TensorText(type, shape),
                 tensor == nullptr ? "nothing" : TensorText(tensor->type, tensor->shape));
}

}  // namespace embershard
