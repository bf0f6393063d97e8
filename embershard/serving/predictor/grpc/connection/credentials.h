// Authentication: TLS for connections, tokens for calls. Every service of the server uses it.

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
  static Result<std::unique_ptr<Security>> Open(const SecurityOptions& options);
  virtual ~Security() = default;

  // Credentials of a server, which this object must outlive. If calls need a token, `connections`
  // (not owned; may be null) is told of each connection that shows one for the first time.
  virtual std::shared_ptr<grpc::ServerCredentials> Credentials(OpenConnections* connections) = 0;

  virtual bool has_token() const = 0;
  virtual SecurityCounts counts() const = 0;
};

}  // namespace embershard::rpc
