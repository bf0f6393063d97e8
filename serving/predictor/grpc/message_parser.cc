#include "grpc/message_parser.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <string>

namespace embershard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

Status Malformed(const std::string& message) {
  return {StatusCode::kInvalidArgument, message, StatusReason::kMalformed};
}

// What the field is, where it is a message; else null.
const Descriptor* MessageIn(const Descriptor& type, uint32_t tag) {
  if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
    return nullptr;
  }
  const auto* const field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
  return field != nullptr ? field->message_type() : nullptr;
}

enum class Fields { kFew, kTooMany, kMalformed };

// Takes the fields up to the end of the message from `left`.
Fields CountFields(const Descriptor& type, CodedInputStream* message, int* left) {
  while (const uint32_t tag = message->ReadTag()) {
    if (--*left < 0) return Fields::kTooMany;
    const Descriptor* const inner_type = MessageIn(type, tag);
    if (inner_type == nullptr) {
      // A group is no field of ours, and holds any number of others.
      const auto type = WireFormatLite::GetTagWireType(tag);
      if (type == WireFormatLite::WIRETYPE_START_GROUP) return Fields::kMalformed;
      if (!WireFormatLite::SkipField(message, tag)) return Fields::kMalformed;
      continue;
    }
    uint32_t size = 0;
    if (!message->ReadVarint32(&size)) return Fields::kMalformed;
    const CodedInputStream::Limit outer = message->PushLimit(static_cast<int>(size));
    const Fields inner = CountFields(*inner_type, message, left);
    if (inner != Fields::kFew) return inner;
    message->PopLimit(outer);
  }
  return message->ConsumedEntireMessage() ? Fields::kFew : Fields::kMalformed;
}

Fields CountFields(const Descriptor& type, grpc::ByteBuffer* bytes) {
  grpc::ProtoBufferReader reader(bytes);
  if (!reader.status().ok()) return Fields::kMalformed;
  CodedInputStream message(&reader);
  int left = kMessageFieldsMax;
  return CountFields(type, &message, &left);
}

}  // namespace

Status ParseMessage(grpc::ByteBuffer* bytes, google::protobuf::Message* message) {
  const Descriptor& type = *message->GetDescriptor();
  const Fields fields = CountFields(type, bytes);
  bool read = fields == Fields::kFew;
  if (read)
    read = grpc::SerializationTraits<google::protobuf::Message>::Deserialize(bytes, message).ok();
  bytes->Clear();
  if (read) return {};
  // What was read of it before it failed may be no text that an answer can hold.
  message->Clear();
  if (fields != Fields::kTooMany) return Malformed("the message is not a " + type.name());
  return Malformed("the message: expected at most " + std::to_string(kMessageFieldsMax) +
                   " fields, got more");
}

}  // namespace embershard
