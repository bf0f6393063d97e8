#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unaligned.h"
#include "batching/request.h"
#include "engine/engine.h"
#include "grpc/recorder.h"
#include "registry/served_models.h"

namespace embershard::rpc {

// A message's size does not bound the memory that it takes once parsed, so these limits do.
// Most fields of a message, nested ones included: a field of 2 bytes may take over 100 bytes.
inline constexpr int kMessageFieldsMax = 1 << 16;
// Most integers in packed fields: one byte on the wire becomes 8 bytes, and up to 32 while parsing.
inline constexpr int kMessageValuesMax = 1 << 21;

// Parses and clears `bytes`. kInvalidArgument, with an empty `message`, if they are not such a
// message, or have too many fields or values. `unknown_fields` (may be null) receives the number of
// fields that the type does not declare. REQUIRES: the message type is not recursive.
Status ParseMessage(grpc::ByteBuffer* bytes, google::protobuf::Message* message,
                    size_t* unknown_fields = nullptr);

// Keeps protobuf from writing a line to standard error for each message whose text is not UTF-8.
// Parsing refuses such messages.
void SilenceProtobuf();

// Throws if memory runs out.
template <class Message>
grpc::ByteBuffer WriteMessage(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own;
  const grpc::Status written = grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  if (!written.ok()) throw std::runtime_error(written.error_message());
  return bytes;
}

// A protocol's part in handling a request. Owns the messages. Used by one thread at a time.
class WireMessages {
 public:
  virtual ~WireMessages() = default;

  // The engine that the request names, or the reason why it is not served.
  virtual Result<std::shared_ptr<Engine>> Find(const ServedModels& served) const = 0;

  // Counted from the request's arrival. 0: none.
  virtual std::chrono::nanoseconds timeout() const { return {}; }

  // Fills num_examples, priority, the wanted outputs, held_bytes and the views over the messages.
  // Fails for errors that do not depend on values, such as unknown names.
  virtual Status Parse(const Engine& engine, Request* request) = 0;

  // REQUIRES: Parse() was ok.
  virtual void Fill(const Engine& engine, const Response& answer) = 0;

  // Fields of the request, empty before Read().
  virtual std::string_view id() const { return {}; }  // The client's id of the request.
  virtual uint32_t examples() const = 0;
  virtual Priority priority() const { return Priority::kInteractive; }

  virtual uint64_t bytes_received() const = 0;
  virtual uint64_t bytes_sent() const = 0;

  // Passes request, answer and arrival time to a recorder, in protocols that are recorded.
  virtual void Record(Recorder*, const Status&, std::chrono::system_clock::time_point) const {}

  // See ParseMessage().
  virtual Status Read(grpc::ByteBuffer* bytes) = 0;

  // Called in protocols with streams. `pushback`: time to retry after, or zero.
  virtual void Fail(const grpc::Status&, std::chrono::milliseconds /*pushback*/) {}

  virtual grpc::ByteBuffer Write() const = 0;
};

using MakeMessages = std::shared_ptr<WireMessages> (*)();
template <class Messages>
std::shared_ptr<WireMessages> Make() {
  return std::make_shared<Messages>();
}

// `where` names the values in an error.
template <class T>
Status View(const std::string& bytes, const std::string& where, Unaligned<T>* view) {
  if (bytes.size() % sizeof(T) != 0) {
    return InvalidArgument(where, ": expected a multiple of ", sizeof(T), " bytes, got ",
                           bytes.size());
  }
  *view = Unaligned<T>(bytes.data(), bytes.size() / sizeof(T));
  return {};
}

// A request and its answer in one arena, so that allocations are few and the memory is known
// without a walk over the fields. One thread may read `asked` while another fills `answer`.
template <class Asked, class Answer>
class ArenaMessages {
 public:
  ArenaMessages()
      : arena_(Options()),
        asked_(*google::protobuf::Arena::CreateMessage<Asked>(&arena_)),
        answer_(*google::protobuf::Arena::CreateMessage<Answer>(&arena_)) {}
  ArenaMessages(const ArenaMessages&) = delete;
  ArenaMessages& operator=(const ArenaMessages&) = delete;

  // See ParseMessage().
  Status Read(grpc::ByteBuffer* bytes) {
    received_bytes_ = bytes->Length();
    size_t unknown_fields = 0;
    const Status status = ParseMessage(bytes, &asked_, &unknown_fields);
    // Long strings and unknown fields lie outside the arena.
    held_bytes_ = arena_.SpaceAllocated() + received_bytes_ + unknown_fields * kUnknownFieldBytes;
    return status;
  }

  const Asked& asked() const { return asked_; }
  Answer& answer() { return answer_; }
  const Answer& answer() const { return answer_; }

  // Size of the request on the wire. 0 before Read().
  uint64_t received_bytes() const { return received_bytes_; }

  // Upper bound of the request's memory. 0 before Read().
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  // Overhead of an unknown field: 16 bytes in a vector that may be half empty, a string, and
  // allocation headers.
  static constexpr uint64_t kUnknownFieldBytes = 96;

  static google::protobuf::ArenaOptions Options() {
    google::protobuf::ArenaOptions options;
    options.start_block_size = 4096;  // Enough for a request with a few tensors.
    return options;
  }

  google::protobuf::Arena arena_;
  Asked& asked_;
  Answer& answer_;
  uint64_t received_bytes_ = 0;
  uint64_t held_bytes_ = 0;
};

}  // namespace embershard::rpc
