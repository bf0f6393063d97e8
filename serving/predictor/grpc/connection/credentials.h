// Who is let in: TLS for connections, a token for calls. The one place where that is decided, for
// every service of the server.

#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "grpc/connection/bearer_token.h"
#include "grpc/connection/open_connections.h"
#include "grpc/connection/security_options.h"
#include "grpc/connection/tls_files.h"

namespace embershard::rpc {

// Thread-safe.
class Security {
 public:
  // As CheckSecurity().
  static Result<std::unique_ptr<Security>> Open(const SecurityOptions& options);

  // For a server, which this object must outlive. If calls need a token, `connections`, which is
  // not owned, is told of calls without.
  std::shared_ptr<grpc::ServerCredentials> Credentials(OpenConnections* connections);

  bool has_token() const { return token_ != nullptr; }

  SecurityCounts counts() const {
    return {.refused_calls = refused_calls_, .certificate_expires_unix_seconds = expires_};
  }

 private:
  explicit Security(const SecurityOptions& options);

  // gRPC's, for each connection and each call.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config);
  static void Process(void* self, grpc_auth_context* context, const grpc_metadata* headers,
                      size_t num_headers, grpc_process_auth_metadata_done_cb done, void* call);

  std::optional<TlsTexts> ChangedTls() noexcept;  // Nothing: as before.
  bool Accepts(std::string_view header) const noexcept;
  grpc_ssl_server_certificate_config* ConfigOf(const TlsTexts& texts);

  const bool clients_need_certificates_;
  const std::function<void(const std::string&)> report_;
  std::unique_ptr<TlsFiles> tls_;           // Null: none.
  std::unique_ptr<BearerToken> token_;      // Null: none.
  OpenConnections* connections_ = nullptr;  // Set with a token.
  TlsTexts first_;                          // What the first Fetch() gives.
  std::atomic<bool> fetched_ = false;
  std::atomic<int64_t> expires_ = 0;
  std::atomic<uint64_t> refused_calls_ = 0;
};

}  // namespace embershard::rpc
