// A request and its answer in one arena: few allocations, and memory that is known without a walk
// over the fields.

#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "grpc/predict/message_parser.h"

namespace embershard::rpc {

// One thread at a time reads `asked`, and one fills `answer`: they need not be the same.
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
