// Who is let in: TLS for connections, a token for calls. The one place where that is decided, for
// every service of the server.

#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "base/status.h"
#include "grpc/connection/security_options.h"

namespace embershard::rpc {

// Thread-safe.
class Security {
 public:
  // As CheckSecurity().
  static Result<std::unique_ptr<Security>> Open(const SecurityOptions& options);
  virtual ~Security() = default;

  // For a server, which this object must outlive.
  virtual std::shared_ptr<grpc::ServerCredentials> Credentials() = 0;

  virtual bool has_token() const = 0;
  virtual SecurityCounts counts() const = 0;
};

}  // namespace embershard::rpc
