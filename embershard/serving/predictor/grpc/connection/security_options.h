#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace embershard::rpc {

// Requirements for connections and calls. By default there are none, and traffic is not encrypted.
struct SecurityOptions {
  // PEM files. The first two turn TLS on. With `client_ca`, clients need a certificate signed by
  // one of its authorities. Changed files are used for new connections.
  std::string certificate;
  std::string key;
  std::string client_ca;

  std::string token_file;  // Every call except health checks must carry one of its tokens.
  // Receives a sentence if a changed file cannot be used; its earlier content stays in use. Called
  // on any thread; must return quickly.
  std::function<void(const std::string&)> report;
};

struct SecurityCounts {
  uint64_t refused_calls = 0;  // Calls answered UNAUTHENTICATED.
  // Unix time at which the certificate of new connections expires. 0: there is no certificate.
  int64_t certificate_expires_unix_seconds = 0;
};

// Checks that the files can be used. kInvalidArgument names the file and what is wrong with it.
Status CheckSecurity(const SecurityOptions& options);

}  // namespace embershard::rpc
