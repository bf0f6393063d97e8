#include "grpc/message_parser.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <string>

namespace embershard {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

Status Malformed(const std::string& message) {
  return {StatusCode::kInvalidArgument, message, StatusReason::kMalformed};
}

bool HoldsFields(uint32_t tag) {
  if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
    return false;
  }
  const int field = WireFormatLite::GetTagFieldNumber(tag);
  return field == v1::PredictRequest::kPackedFieldNumber ||
         field == v1::PredictRequest::kDenseFieldNumber ||
         field == v1::PredictRequest::kSparseFieldNumber;
}

enum class Fields { kFew, kTooMany, kMalformed };

// Takes the fields up to the end of the message from `left`. `nests`: whether there may be messages
// of ours in it.
Fields CountFields(CodedInputStream* message, bool nests, int* left) {
  while (const uint32_t tag = message->ReadTag()) {
    if (--*left < 0) return Fields::kTooMany;
    if (!nests || !HoldsFields(tag)) {
      // A group is no field of ours, and holds any number of others.
      const auto type = WireFormatLite::GetTagWireType(tag);
      if (type == WireFormatLite::WIRETYPE_START_GROUP) return Fields::kMalformed;
      if (!WireFormatLite::SkipField(message, tag)) return Fields::kMalformed;
      continue;
    }
    uint32_t size = 0;
    if (!message->ReadVarint32(&size)) return Fields::kMalformed;
    const CodedInputStream::Limit outer = message->PushLimit(static_cast<int>(size));
    if (const Fields inner = CountFields(message, false, left); inner != Fields::kFew) return inner;
    message->PopLimit(outer);
  }
  return message->ConsumedEntireMessage() ? Fields::kFew : Fields::kMalformed;
}

Fields CountFields(grpc::ByteBuffer* bytes, bool nests) {
  grpc::ProtoBufferReader reader(bytes);
  if (!reader.status().ok()) return Fields::kMalformed;
  CodedInputStream message(&reader);
  int left = kMessageFieldsMax;
  return CountFields(&message, nests, &left);
}

}  // namespace

Status ParseMessage(grpc::ByteBuffer* bytes, v1::PredictRequest* request) {
  const Fields fields = CountFields(bytes, true);
  bool read = fields == Fields::kFew;
  if (read) read = grpc::SerializationTraits<v1::PredictRequest>::Deserialize(bytes, request).ok();
  bytes->Clear();
  if (read) return {};
  // What was read of it before it failed may be no text that an answer can hold.
  request->Clear();
  if (fields != Fields::kTooMany) return Malformed("the message is not a PredictRequest");
  return Malformed("the message: expected at most " + std::to_string(kMessageFieldsMax) +
                   " fields, got more");
}

}  // namespace embershard
