#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace embershard::rpc {

// What connections and calls must show. By default nothing, and all goes as it is.
struct SecurityOptions {
  // PEM files. `certificate` (with those between it and its root, in order) and `key`: TLS. With
  // `client_ca` too, connections need a certificate that one of those in it has signed.
  // Their content is looked at as each connection comes, so that new files hold for the next one.
  std::string certificate;
  std::string key;
  std::string client_ca;

  // A file of one token, which every call but those for health must carry, as
  // "authorization: Bearer TOKEN". Reread each second.
  std::string token_file;

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
