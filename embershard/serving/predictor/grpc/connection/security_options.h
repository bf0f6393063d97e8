#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace embershard::rpc {

// What connections and calls must show. By default nothing, and all goes as it is.
struct SecurityOptions {
  // PEM files: TLS with the first two, and with `client_ca` connections need a certificate that one
  // of those in it has signed. Looked at as each connection comes.
  std::string certificate;
  std::string key;
  std::string client_ca;

  std::string token_file;  // Of tokens, one of which every call but those for health must carry.

  // Gets a sentence when files have changed and cannot be used; what was read before holds on.
  // From any thread, of which it must not take long.
  std::function<void(const std::string&)> report;
};

struct SecurityCounts {
  uint64_t refused_calls = 0;  // Answered UNAUTHENTICATED.

  // When the certificate of new connections expires, since 1970. 0: there is none.
  int64_t certificate_expires_unix_seconds = 0;
};

// Whether the files can be used. If not, kInvalidArgument: which, and what is wrong.
Status CheckSecurity(const SecurityOptions& options);

}  // namespace embershard::rpc
