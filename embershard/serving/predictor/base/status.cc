#include "base/status.h"

#include "base/text.h"

namespace embershard {
namespace {

// A message may quote a name of many megabytes, and escapes take up to six times as much.
constexpr size_t kStatusBytesMax = size_t{16} << 10;

std::string Shown(std::string message) {
  if (message.size() > kStatusBytesMax) {
    message.resize(CutUtf8(message, kStatusBytesMax).size());
    message += "...";
  }
  return EscapeControls(std::move(message));
}

}  // namespace

Status::Status(StatusCode code, std::string message, StatusReason reason)
    : code_(code), reason_(reason), message_(Shown(std::move(message))) {}

}  // namespace embershard
