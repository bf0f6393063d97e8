#include "grpc/connection/credentials.h"

#include <grpc/grpc.h>
#include <grpc/slice.h>

#include <exception>
#include <optional>
#include <string_view>
#include <utility>

namespace embershard::rpc {
namespace {

// Who asks for a server's health has no token, and learns nothing else.
constexpr std::string_view kHealth = "/grpc.health.v1.Health/";

constexpr char kNoToken[] = "authorization: expected one header 'Bearer TOKEN', got none";
constexpr char kOtherToken[] = "authorization: the token is not this server's";

std::string_view TextOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// gRPC has a class for TLS whose certificates change, which takes a key before its certificate has
// come and then refuses every connection, and none for tokens without TLS. Its C core has what is
// needed for both.
class CoreCredentials final : public grpc::ServerCredentials {
 public:
  explicit CoreCredentials(grpc_server_credentials* core) : core_(core) {}
  ~CoreCredentials() override { grpc_server_credentials_release(core_); }

  // Set on the core's own.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  grpc_server_credentials* const core_;
};

}  // namespace

Result<std::unique_ptr<Security>> Security::Open(const SecurityOptions& options) {
  std::unique_ptr<Security> security(new Security(options));
  if (!options.certificate.empty()) {
    security->tls_ = std::make_unique<TlsFiles>(options);
    ASSIGN_OR_RETURN(std::optional<TlsTexts> texts, security->tls_->ReadIfChanged());
    security->expires_ = texts->expires_unix_seconds;
    security->first_ = std::move(*texts);
  }
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(security->token_, BearerToken::Open(options.token_file, options.report));
  }
  return security;
}

Status CheckSecurity(const SecurityOptions& options) { return Security::Open(options).status(); }

Security::Security(const SecurityOptions& options)
    : clients_need_certificates_(!options.client_ca.empty()), report_(options.report) {}

std::shared_ptr<grpc::ServerCredentials> Security::Credentials(OpenConnections* connections) {
  if (tls_ == nullptr && token_ == nullptr) return grpc::InsecureServerCredentials();
  grpc_server_credentials* core;
  if (tls_ != nullptr) {
    const auto from_clients = clients_need_certificates_
                                  ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                  : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    core = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(from_clients, &Fetch,
                                                                        this));
  } else {
    core = grpc_insecure_server_credentials_create();
  }
  if (token_ != nullptr) {
    connections_ = connections;
    grpc_server_credentials_set_auth_metadata_processor(
        core, {.process = &Process, .destroy = nullptr, .state = this});
  }
  return std::make_shared<CoreCredentials>(core);
}

bool Security::Accepts(std::string_view header) const noexcept {
  try {
    return token_->Accepts(header, Clock::now());
  } catch (const std::exception&) {  // Memory has run out, and who cannot be told apart stays out.
    return false;
  }
}

grpc_ssl_certificate_config_reload_status Security::Fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  auto* const security = static_cast<Security*>(self);
  if (!security->fetched_.exchange(true)) {
    *config = security->ConfigOf(std::exchange(security->first_, {}));
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }
  const std::optional<TlsTexts> changed = security->ChangedTls();
  if (!changed.has_value()) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  *config = security->ConfigOf(*changed);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

std::optional<TlsTexts> Security::ChangedTls() noexcept {
  try {
    Result<std::optional<TlsTexts>> texts = tls_->ReadIfChanged();
    if (texts.ok()) return std::move(*texts);
    if (report_) report_(texts.status().message() + "; the certificate before it holds on");
  } catch (const std::exception&) {  // Memory has run out. The certificate before it holds on.
  }
  return {};
}

grpc_ssl_server_certificate_config* Security::ConfigOf(const TlsTexts& texts) {
  expires_ = texts.expires_unix_seconds;
  const grpc_ssl_pem_key_cert_pair pair = {.private_key = texts.key.c_str(),
                                           .cert_chain = texts.certificate.c_str()};
  // gRPC takes none without authorities, also where no client is asked for a certificate.
  const std::string& authorities = clients_need_certificates_ ? texts.client_ca : texts.certificate;
  return grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
}

void Security::Process(void* self, grpc_auth_context*, const grpc_metadata* headers,
                       size_t num_headers, grpc_process_auth_metadata_done_cb done, void* call) {
  auto* const security = static_cast<Security*>(self);
  const grpc_metadata* shown = nullptr;
  size_t num_shown = 0;
  std::string_view path;
  for (size_t i = 0; i < num_headers; ++i) {
    const std::string_view key = TextOf(headers[i].key);
    if (key == ":path") path = TextOf(headers[i].value);
    if (key != "authorization") continue;
    shown = &headers[i];
    ++num_shown;
  }
  const bool is_one = num_shown == 1;
  const bool is_accepted = is_one && security->Accepts(TextOf(shown->value));
  if (!is_accepted) security->connections_->CountUnauthenticatedCall();
  if (is_accepted || path.starts_with(kHealth)) {
    // What is consumed goes no further: no handler, log or recording ever sees it.
    done(call, shown, is_one ? 1 : 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
    return;
  }
  ++security->refused_calls_;
  done(call, nullptr, 0, nullptr, 0, GRPC_STATUS_UNAUTHENTICATED, is_one ? kOtherToken : kNoToken);
}

}  // namespace embershard::rpc
