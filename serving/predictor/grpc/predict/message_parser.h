// Messages out of any bytes.

#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstddef>

#include "base/status.h"

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

}  // namespace embershard::rpc
