// Who is let in: TLS for connections, a token for calls. The one place where that is decided, for
// every service of the server.

#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "base/status.h"
#include "grpc/connection/open_connections.h"
#include "grpc/connection/security_options.h"

namespace embershard::rpc {

// Thread-safe.
class Security {
 public:
  // As CheckSecurity().
  static Result<std::unique_ptr<Security>> Open(const SecurityOptions& options);
  virtual ~Security() = default;

  // For a server, which this object must outlive. If calls need a token, `connections`, which is
  // not owned, is told of each that shows it for the first time. May be null.
  virtual std::shared_ptr<grpc::ServerCredentials> Credentials(OpenConnections* connections) = 0;

  virtual bool has_token() const = 0;
  virtual SecurityCounts counts() const = 0;
};

}  // namespace embershard::rpc
