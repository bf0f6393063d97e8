// A request and its answer, as one protocol writes them.

#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unaligned.h"
#include "batching/request.h"
#include "engine/engine.h"
#include "engine/served_models.h"
#include "grpc/recorder.h"

namespace embershard::rpc {

// All that the life of a request (grpc/predict_handler.h) needs to know of its protocol. Owns the
// messages. One thread at a time.
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

// Throws where memory has run out.
template <class Message>
grpc::ByteBuffer WriteMessage(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own;
  const grpc::Status written = grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own);
  if (!written.ok()) throw std::runtime_error(written.error_message());
  return bytes;
}

}  // namespace embershard::rpc
