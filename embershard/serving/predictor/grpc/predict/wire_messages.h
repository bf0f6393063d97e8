// A request and its answer, as one protocol writes them, out of any bytes.

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

// The size of a message alone bounds no memory, so these do:
// Fields of a message and of the messages in it. One of two bytes may take a hundred and more once
// it is parsed.
inline constexpr int kMessageFieldsMax = 1 << 16;
// Whole numbers in its packed fields. One of a byte on the wire takes 8 once it is parsed, and up
// to four times that on the way.
inline constexpr int kMessageValuesMax = 1 << 21;

// Empties `bytes`. kInvalidArgument where they are none, or one of too many fields or values; then
// `message` holds nothing. `unknown_fields`: how many of its fields the message's type has not,
// which are kept; null: nobody asks. REQUIRES: no message of its type has one of its own type in
// it.
Status ParseMessage(grpc::ByteBuffer* bytes, google::protobuf::Message* message,
                    size_t* unknown_fields = nullptr);

// A message whose text is no UTF-8 is refused, where it is parsed. Without this protobuf also
// writes a line to standard error about each.
void SilenceProtobuf();

// Throws where memory has run out.
template <class Message>
grpc::ByteBuffer WriteMessage(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own;
  const grpc::Status written = grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  if (!written.ok()) throw std::runtime_error(written.error_message());
  return bytes;
}

// All that the life of a request (grpc/predict/predict_handler.h) needs to know of its protocol.
// Owns the messages. One thread at a time.
class WireMessages {
 public:
  virtual ~WireMessages() = default;

  // What the request is for, or why it is not served.
  virtual Result<std::shared_ptr<Engine>> Find(const ServedModels& served) const = 0;

  // Its own deadline, counted from its arrival. 0: it has none.
  virtual std::chrono::nanoseconds timeout() const { return {}; }

  // Fills num_examples, priority, the wanted outputs, held_bytes and the views, which lie over the
  // messages. Refuses what the wire alone shows to be wrong.
  virtual Status Parse(const Engine& engine, Request* request) = 0;

  // Fills the answer. REQUIRES: Parse() was ok.
  virtual void Fill(const Engine& engine, const Response& answer) = 0;

  // What the request says, as far as it is known.
  virtual std::string_view id() const { return {}; }  // What its client calls it.
  virtual uint32_t examples() const = 0;
  virtual Priority priority() const { return Priority::kInteractive; }

  virtual uint64_t bytes_received() const = 0;
  virtual uint64_t bytes_sent() const = 0;

  // Hands them, with when the request arrived, to a recorder, where the protocol is recorded.
  virtual void Record(Recorder*, const Status&, std::chrono::system_clock::time_point) const {}

  // Fills the request, as ParseMessage() does.
  virtual Status Read(grpc::ByteBuffer* bytes) = 0;

  // Makes the answer one that says why the request failed. `pushback`: when to try again; zero
  // where that is not said. Of protocols with streams.
  virtual void Fail(const grpc::Status&, std::chrono::milliseconds /*pushback*/) {}

  virtual grpc::ByteBuffer Write() const = 0;
};

// A request that is to be read and its answer, of the protocol that a method speaks.
using MakeMessages = std::shared_ptr<WireMessages> (*)();
template <class Messages>
std::shared_ptr<WireMessages> Make() {
  return std::make_shared<Messages>();
}

// Views `bytes` as values of type T. `where` names them in a refusal.
template <class T>
Status View(const std::string& bytes, const std::string& where, Unaligned<T>* view) {
  if (bytes.size() % sizeof(T) != 0) {
    return InvalidArgument(where, ": expected a multiple of ", sizeof(T), " bytes, got ",
                           bytes.size());
  }
  *view = Unaligned<T>(bytes.data(), bytes.size() / sizeof(T));
  return {};
}

// A request and its answer in one arena: few allocations, and memory that is known without a walk
// over the fields. One thread at a time reads `asked`, and one fills `answer`: they need not be the
// same.
template <class Asked, class Answer>
class ArenaMessages {
 public:
  ArenaMessages()
      : arena_(Options()),
        asked_(*google::protobuf::Arena::CreateMessage<Asked>(&arena_)),
        answer_(*google::protobuf::Arena::CreateMessage<Answer>(&arena_)) {}
  ArenaMessages(const ArenaMessages&) = delete;
  ArenaMessages& operator=(const ArenaMessages&) = delete;

  // Fills the request, as ParseMessage() does.
  Status Read(grpc::ByteBuffer* bytes) {
    received_bytes_ = bytes->Length();
    size_t unknown_fields = 0;
    const Status status = ParseMessage(bytes, &asked_, &unknown_fields);
    // Outside the arena are long texts, which came over the wire, and fields that nobody knows.
    held_bytes_ = arena_.SpaceAllocated() + received_bytes_ + unknown_fields * kUnknownFieldBytes;
    return status;
  }

  const Asked& asked() const { return asked_; }
  Answer& answer() { return answer_; }
  const Answer& answer() const { return answer_; }

  // Of the request, as it came. 0 before Read().
  uint64_t received_bytes() const { return received_bytes_; }

  // What the request takes of the memory, at most. As above.
  uint64_t held_bytes() const { return held_bytes_; }

 private:
  // Beside its text: 16 in a vector that may be half empty, a string, and the edges of both.
  static constexpr uint64_t kUnknownFieldBytes = 96;

  static google::protobuf::ArenaOptions Options() {
    google::protobuf::ArenaOptions options;
    options.start_block_size = 4096;  // A request of some tensors.
    return options;
  }

  google::protobuf::Arena arena_;
  Asked& asked_;
  Answer& answer_;
  uint64_t received_bytes_ = 0;
  uint64_t held_bytes_ = 0;
};

}  // namespace embershard::rpc
