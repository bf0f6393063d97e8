#include "grpc/predict/wire_messages.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <mutex>

namespace embershard::rpc {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

Status Malformed(const std::string& message) {
  return {StatusCode::kInvalidArgument, message, StatusReason::kMalformed};
}

Status TooMany(int most, const char* what) {
  return Malformed(StrCat("the message: expected at most ", most, " ", what, ", got more"));
}

WireFormatLite::WireType TypeOf(const FieldDescriptor& field) {
  return WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
}

enum class Verdict { kFew, kTooManyFields, kTooManyValues, kMalformed };

// Counts fields and values in one walk over the bytes of a message.
class Counter {
 public:
  explicit Counter(CodedInputStream* message) : message_(*message) {}

  // Counts up to the end of the message, or to the pushed limit.
  Verdict Count(const Descriptor& type) {
    while (const uint32_t tag = message_.ReadTag()) {
      if (--fields_left_ < 0) return Verdict::kTooManyFields;
      const Verdict verdict = CountOne(type, tag);
      if (verdict != Verdict::kFew) return verdict;
    }
    return message_.ConsumedEntireMessage() ? Verdict::kFew : Verdict::kMalformed;
  }

  size_t unknown_fields() const { return unknown_fields_; }

 private:
  Verdict CountOne(const Descriptor& type, uint32_t tag) {
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    // Our messages have no groups, which may nest any number of fields.
    if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) return Verdict::kMalformed;
    const auto* const field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool has_length = wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    const bool is_packed = field != nullptr && has_length && field->is_packable();
    if (field == nullptr || (wire_type != TypeOf(*field) && !is_packed)) ++unknown_fields_;
    const Descriptor* const inner =
        has_length && field != nullptr ? field->message_type() : nullptr;
    const bool has_values = is_packed && TypeOf(*field) == WireFormatLite::WIRETYPE_VARINT;
    if (inner == nullptr && !has_values) {
      return WireFormatLite::SkipField(&message_, tag) ? Verdict::kFew : Verdict::kMalformed;
    }
    uint32_t size = 0;
    if (!message_.ReadVarint32(&size)) return Verdict::kMalformed;
    if (has_values) return CountValues(size);
    const CodedInputStream::Limit outer = message_.PushLimit(static_cast<int>(size));
    const Verdict verdict = Count(*inner);
    if (verdict == Verdict::kFew) message_.PopLimit(outer);
    return verdict;
  }

  Verdict CountValues(uint32_t size) {
    while (size > 0) {
      const void* there = nullptr;
      int bytes = 0;
      if (!message_.GetDirectBufferPointer(&there, &bytes)) return Verdict::kMalformed;
      const uint32_t taken = std::min(size, static_cast<uint32_t>(bytes));
      const auto* const begin = static_cast<const uint8_t*>(there);
      // The last byte of a value is below 0x80.
      values_left_ -= std::count_if(begin, begin + taken, [](uint8_t byte) { return byte < 0x80; });
      if (values_left_ < 0) return Verdict::kTooManyValues;
      message_.Skip(static_cast<int>(taken));
      size -= taken;
    }
    return Verdict::kFew;
  }

  CodedInputStream& message_;
  int fields_left_ = kMessageFieldsMax;
  int64_t values_left_ = kMessageValuesMax;
  size_t unknown_fields_ = 0;
};

Verdict Count(const Descriptor& type, grpc::ByteBuffer* bytes, size_t* unknown_fields) {
  grpc::ProtoBufferReader reader(bytes);
  if (!reader.status().ok()) return Verdict::kMalformed;
  CodedInputStream message(&reader);
  Counter counter(&message);
  const Verdict verdict = counter.Count(type);
  if (unknown_fields != nullptr) *unknown_fields = counter.unknown_fields();
  return verdict;
}

}  // namespace

Status ParseMessage(grpc::ByteBuffer* bytes, google::protobuf::Message* message,
                    size_t* unknown_fields) {
  const Descriptor& type = *message->GetDescriptor();
  const Verdict verdict = Count(type, bytes, unknown_fields);
  bool read = verdict == Verdict::kFew;
  if (read) {
    read = grpc::SerializationTraits<google::protobuf::Message>::Deserialize(bytes, message).ok();
  }
  bytes->Clear();
  if (read) return {};
  // A message that failed to parse may contain text that is not UTF-8, which an answer cannot hold.
  message->Clear();
  if (verdict == Verdict::kTooManyFields) return TooMany(kMessageFieldsMax, "fields");
  if (verdict == Verdict::kTooManyValues) {
    return TooMany(kMessageValuesMax, "values in varints, which can come as bytes");
  }
  return Malformed("the message is not a " + type.name());
}

void SilenceProtobuf() {
  static std::once_flag silenced;
  std::call_once(silenced, [] { google::protobuf::SetLogHandler(nullptr); });
}

}  // namespace embershard::rpc
