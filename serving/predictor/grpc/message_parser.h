// Messages out of any bytes.

#ifndef EMBERSHARD_GRPC_MESSAGE_PARSER_H_
#define EMBERSHARD_GRPC_MESSAGE_PARSER_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "base/status.h"

namespace embershard {

// Fields of a message and of the messages in it. A field of two bytes may take a hundred and more
// once it is parsed, so that the size of a message alone bounds no memory.
inline constexpr int kMessageFieldsMax = 1 << 16;

// Empties `bytes`. kInvalidArgument where they are none, or one of too many fields; then
// `message` holds nothing. REQUIRES: no message of its type has one of its own type in it.
Status ParseMessage(grpc::ByteBuffer* bytes, google::protobuf::Message* message);

}  // namespace embershard

#endif  // EMBERSHARD_GRPC_MESSAGE_PARSER_H_
