#include "bench/grpc_stream_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/slice.h>

#include <vector>

namespace embershard {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;
using Wire = google::protobuf::internal::WireFormatLite;

constexpr uint32_t Varint(int field) { return Wire::MakeTag(field, Wire::WIRETYPE_VARINT); }
constexpr uint32_t Bytes(int field) {
  return Wire::MakeTag(field, Wire::WIRETYPE_LENGTH_DELIMITED);
}

// PredictRequest
constexpr uint32_t kRequestId = Bytes(8);
constexpr uint32_t kTimeoutMs = Varint(11);
// PredictResponse
constexpr uint32_t kAnswerId = Bytes(6);
constexpr uint32_t kFailure = Bytes(8);
// Failure
constexpr uint32_t kCode = Varint(1);
constexpr uint32_t kMessage = Bytes(2);

bool ReadText(CodedInputStream* in, std::string* text) {
  uint32_t size;
  return in->ReadVarint32(&size) && in->ReadString(text, static_cast<int>(size));
}

bool ReadFailure(CodedInputStream* in, StreamAnswer* answer) {
  uint32_t size;
  if (!in->ReadVarint32(&size)) return false;
  const auto limit = in->PushLimit(static_cast<int>(size));
  while (const uint32_t tag = in->ReadTag()) {
    uint32_t code;
    if (tag == kCode) {
      if (!in->ReadVarint32(&code)) return false;
      answer->code = static_cast<int>(code);
    } else if (tag == kMessage) {
      if (!ReadText(in, &answer->message)) return false;
    } else if (!Wire::SkipField(in, tag)) {
      return false;
    }
  }
  const bool whole = in->ConsumedEntireMessage();
  in->PopLimit(limit);
  return whole;
}

}  // namespace

grpc::ByteBuffer WithIdAndTimeout(const grpc::ByteBuffer& request, const std::string& id,
                                  uint32_t timeout_ms) {
  std::string fields;
  {
    StringOutputStream text(&fields);
    CodedOutputStream out(&text);
    out.WriteVarint32(kRequestId);
    out.WriteVarint32(static_cast<uint32_t>(id.size()));
    out.WriteString(id);
    out.WriteVarint32(kTimeoutMs);
    out.WriteVarint32(timeout_ms);
  }
  std::vector<grpc::Slice> slices;
  if (!request.Dump(&slices).ok()) return {};  // Of bytes as they are: never.
  slices.emplace_back(fields);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

bool ReadStreamAnswer(const grpc::ByteBuffer& bytes, StreamAnswer* answer) {
  grpc::Slice slice;
  if (!bytes.TrySingleSlice(&slice).ok() && !bytes.DumpToSingleSlice(&slice).ok()) return false;
  CodedInputStream in(slice.begin(), static_cast<int>(slice.size()));
  while (const uint32_t tag = in.ReadTag()) {
    if (tag == kAnswerId) {
      if (!ReadText(&in, &answer->id)) return false;
    } else if (tag == kFailure) {
      if (!ReadFailure(&in, answer)) return false;
    } else if (!Wire::SkipField(&in, tag)) {
      return false;
    }
  }
  return in.ConsumedEntireMessage();
}

}  // namespace embershard
