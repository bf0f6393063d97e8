#include "triton/request_reader.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "triton/errors.h"

namespace embershard {
namespace {

// As protocols write the types, in the order of TRITONSERVER_DataType.
constexpr std::array<std::string_view, 15> kDatatypes = {
    "INVALID", "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
    "INT32",   "INT64", "FP16",  "FP32",   "FP64",   "BYTES",  "BF16"};
static_assert(kDatatypes[TRITONSERVER_TYPE_INT32] == kInt32);
static_assert(kDatatypes[TRITONSERVER_TYPE_INT64] == kInt64);
static_assert(kDatatypes[TRITONSERVER_TYPE_FP32] == kFp32);
static_assert(kDatatypes[TRITONSERVER_TYPE_BF16] == "BF16");

std::string_view NameOf(TRITONSERVER_DataType datatype) {
  const auto index = static_cast<size_t>(datatype);
  return kDatatypes[index < kDatatypes.size() ? index : 0];
}

ParameterValue ValueOf(TRITONSERVER_ParameterType type, const void* value) {
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      return std::string_view(static_cast<const char*>(value));
    case TRITONSERVER_PARAMETER_INT:
      return *static_cast<const int64_t*>(value);
    case TRITONSERVER_PARAMETER_BOOL:
      return *static_cast<const bool*>(value);
    case TRITONSERVER_PARAMETER_DOUBLE:
      return *static_cast<const double*>(value);
    case TRITONSERVER_PARAMETER_BYTES:
      break;
  }
  return {};
}

}  // namespace

Status RequestReader::ReadShapes(TRITONBACKEND_Request* request) {
  Status status = ReadInputs(request);
  return status.ok() ? ReadParameters(request) : status;
}

Status RequestReader::Read(TRITONBACKEND_Request* request) {
  Status status = ReadShapes(request);
  if (status.ok()) status = ReadBuffers();
  return status.ok() ? ReadOutputs(request) : status;
}

Status RequestReader::ReadInputs(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  Status status = FromTriton(TRITONBACKEND_RequestInputCount(request, &count));
  inputs_.reserve(count);
  handles_.reserve(count);
  for (uint32_t i = 0; status.ok() && i < count; ++i) {
    Input input;
    status = FromTriton(TRITONBACKEND_RequestInputByIndex(request, i, &input.handle));
    if (!status.ok()) break;
    const char* name = "";
    TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
    const int64_t* shape = nullptr;
    uint32_t dims = 0;
    uint64_t bytes = 0;
    status = FromTriton(TRITONBACKEND_InputProperties(input.handle, &name, &datatype, &shape, &dims,
                                                      &bytes, &input.buffers));
    inputs_.push_back(
        {.name = name, .datatype = NameOf(datatype), .shape = {shape, dims}, .pieces = {}});
    handles_.push_back(input);
  }
  return status;
}

Status RequestReader::ReadBuffers() {
  size_t pieces = 0;
  for (const Input& input : handles_) pieces += input.buffers;
  pieces_.reserve(pieces);  // Spans lie over it.
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const size_t first = pieces_.size();
    for (uint32_t buffer = 0; buffer < handles_[i].buffers; ++buffer) {
      const void* data = nullptr;
      uint64_t bytes = 0;
      TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
      int64_t memory_id = 0;
      Status status = FromTriton(TRITONBACKEND_InputBuffer(handles_[i].handle, buffer, &data,
                                                           &bytes, &memory, &memory_id));
      if (!status.ok()) return status;
      if (memory == TRITONSERVER_MEMORY_GPU) {
        return InvalidArgument("tensor '" + std::string(inputs_[i].name) +
                               "': expected memory of the host, got a device's");
      }
      pieces_.emplace_back(static_cast<const char*>(data), bytes);
    }
    inputs_[i].pieces = std::span<const std::string_view>(pieces_).subspan(first);
  }
  return {};
}

Status RequestReader::ReadParameters(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  Status status = FromTriton(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t i = 0; status.ok() && i < count; ++i) {
    const char* key = "";
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_BYTES;
    const void* value = nullptr;
    status = FromTriton(TRITONBACKEND_RequestParameter(request, i, &key, &type, &value));
    if (status.ok()) status = ReadParameter(key, ValueOf(type, value), &parameters_);
  }
  return status;
}

Status RequestReader::ReadOutputs(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  Status status = FromTriton(TRITONBACKEND_RequestOutputCount(request, &count));
  outputs_.reserve(count);
  for (uint32_t i = 0; status.ok() && i < count; ++i) {
    const char* name = "";
    status = FromTriton(TRITONBACKEND_RequestOutputName(request, i, &name));
    outputs_.emplace_back(name);
  }
  return status;
}

}  // namespace embershard
