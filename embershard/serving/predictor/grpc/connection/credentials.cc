#include "grpc/connection/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_stamp.h"
#include "base/mutex.h"
#include "grpc/connection/bearer_token.h"

namespace embershard::rpc {
namespace {

// Health checks need no token; they reveal nothing else.
constexpr std::string_view kHealth = "/grpc.health.v1.Health/";

constexpr char kNoToken[] = "authorization: expected one header 'Bearer TOKEN', got none";
constexpr char kTokens[] = "authorization: expected one header 'Bearer TOKEN', got several";
constexpr char kOtherToken[] = "authorization: the token is not this server's";

std::string_view TextOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

constexpr size_t kFileBytesMax = 1 << 20;

struct Freed {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Bio = std::unique_ptr<BIO, Freed>;
using Certificate = std::unique_ptr<X509, Freed>;
using Key = std::unique_ptr<EVP_PKEY, Freed>;

Bio BytesOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Null if there is none.
Certificate FirstCertificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(BytesOf(pem).get(), nullptr, nullptr, nullptr));
}

// Null if there is none, or if it needs a password.
Key PrivateKey(const std::string& pem) {
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return Key(PEM_read_bio_PrivateKey(BytesOf(pem).get(), nullptr, no_password, nullptr));
}

// Nothing if the time cannot be read.
std::optional<int64_t> UnixSecondsOf(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return static_cast<int64_t>(timegm(&parts));
}

// gRPC reads this thread's OpenSSL error queue, too.
struct ErrorsCleared {
  ~ErrorsCleared() { ERR_clear_error(); }
};

struct TlsTexts {
  std::string certificate;
  std::string key;
  std::string client_ca;  // Empty: clients need no certificate.
  int64_t expires_unix_seconds = 0;
};

// Rereads files that have changed. Thread-safe.
class TlsFiles {
 public:
  explicit TlsFiles(const SecurityOptions& options)
      : certificate_(options.certificate), key_(options.key), client_ca_(options.client_ca) {}

  // Contents of the files if they changed and can be used: a certificate that has not expired, its
  // key, and clients' authorities. Nothing if they did not change. kInvalidArgument, once for each
  // change, if they cannot be used; perhaps another file will be replaced next.
  Result<std::optional<TlsTexts>> ReadIfChanged() {
    MutexLock lock(mutex_);
    // Taken before the files are read, so that a change meanwhile is noticed the next time.
    const Stamps now = StampsNow();
    if (read_ == now) return std::optional<TlsTexts>();
    Result<TlsTexts> texts = Read();
    read_ = now;
    if (!texts.ok()) return texts.status();
    return std::optional<TlsTexts>(std::move(*texts));
  }

 private:
  using Stamps = std::array<FileStamp, 3>;

  Stamps StampsNow() const {
    return {FileStamp::Of(certificate_), FileStamp::Of(key_),
            client_ca_.empty() ? FileStamp() : FileStamp::Of(client_ca_)};
  }

  Result<TlsTexts> Read() const {
    const ErrorsCleared cleared;
    TlsTexts texts;
    for (const auto& [path, text] : {std::pair(&certificate_, &texts.certificate),
                                     {&key_, &texts.key},
                                     {&client_ca_, &texts.client_ca}}) {
      if (path->empty()) continue;
      ASSIGN_OR_RETURN(*text, ReadSmallFile(*path, kFileBytesMax));
    }
    const Certificate certificate = FirstCertificate(texts.certificate);
    if (certificate == nullptr)
      return InvalidArgument(certificate_, ": expected a PEM certificate");
    const Key key = PrivateKey(texts.key);
    if (key == nullptr) return InvalidArgument(key_, ": expected a PEM key without a password");
    if (X509_check_private_key(certificate.get(), key.get()) != 1) {
      return InvalidArgument(key_, ": expected the key of the certificate in ", certificate_,
                             ", got another");
    }
    const std::optional<int64_t> expires = UnixSecondsOf(X509_get0_notAfter(certificate.get()));
    if (!expires.has_value() || *expires <= std::time(nullptr)) {
      return InvalidArgument(certificate_, ": expected a certificate that is valid, got one that ",
                             "has expired");
    }
    texts.expires_unix_seconds = *expires;
    if (!client_ca_.empty() && FirstCertificate(texts.client_ca) == nullptr) {
      return InvalidArgument(client_ca_, ": expected PEM certificates");
    }
    return texts;
  }

  const std::string certificate_;
  const std::string key_;
  const std::string client_ca_;
  Mutex mutex_;
  std::optional<Stamps> read_ GUARDED_BY(mutex_);  // Stamps of the last read.
};

// Built on gRPC's C core, because the C++ API does not fit: its class for changing certificates may
// load a key before its certificate and then refuses every connection, and it has no tokens without
// TLS.
class CoreCredentials final : public grpc::ServerCredentials {
 public:
  explicit CoreCredentials(grpc_server_credentials* core) : core_(core) {}
  ~CoreCredentials() override { grpc_server_credentials_release(core_); }

  // Not used: the processor is set on the core's credentials.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  grpc_server_credentials* const core_;
};

class FileSecurity final : public Security {
 public:
  explicit FileSecurity(const SecurityOptions& options)
      : clients_need_certificates_(!options.client_ca.empty()), report_(options.report) {}

  Status Read(const SecurityOptions& options) {
    if (!options.certificate.empty()) {
      tls_ = std::make_unique<TlsFiles>(options);
      ASSIGN_OR_RETURN(std::optional<TlsTexts> texts, tls_->ReadIfChanged());
      expires_ = texts->expires_unix_seconds;
      first_ = std::move(*texts);
    }
    if (!options.token_file.empty()) {
      ASSIGN_OR_RETURN(token_, BearerToken::Open(options.token_file, options.report));
    }
    return {};
  }

  std::shared_ptr<grpc::ServerCredentials> Credentials(OpenConnections* connections) override {
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

  bool has_token() const override { return token_ != nullptr; }

  SecurityCounts counts() const override {
    return {.refused_calls = refused_calls_, .certificate_expires_unix_seconds = expires_};
  }

 private:
  // Callbacks from gRPC.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto* const security = static_cast<FileSecurity*>(self);
    if (!security->fetched_.exchange(true)) {
      *config = security->ConfigOf(std::exchange(security->first_, {}));
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
    }
    const std::optional<TlsTexts> changed = security->ChangedTls();
    if (!changed.has_value()) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    *config = security->ConfigOf(*changed);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  static void Process(void* self, grpc_auth_context* connection, const grpc_metadata* headers,
                      size_t num_headers, grpc_process_auth_metadata_done_cb done, void* call) {
    auto* const security = static_cast<FileSecurity*>(self);
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
    const bool is_health = path.starts_with(kHealth);
    if (is_accepted && !is_health) security->Introduce(connection);
    if (is_accepted || is_health) {
      // Consumed metadata is removed from the call, so no handler, log or recording sees the token.
      done(call, shown, is_one ? 1 : 0, nullptr, 0, GRPC_STATUS_OK, nullptr);
      return;
    }
    ++security->refused_calls_;
    const char* const why = is_one ? kOtherToken : num_shown == 0 ? kNoToken : kTokens;
    done(call, nullptr, 0, nullptr, 0, GRPC_STATUS_UNAUTHENTICATED, why);
  }

  // Marks the connection as authenticated. The mark ends with the connection; a context's
  // properties are used for nothing else.
  void Introduce(grpc_auth_context* connection) {
    constexpr char kMark[] = "embershard_token_shown";
    if (connections_ == nullptr) return;
    {
      const MutexLock lock(introducing_);
      auto marks = grpc_auth_context_find_properties_by_name(connection, kMark);
      if (grpc_auth_property_iterator_next(&marks) != nullptr) return;
      grpc_auth_context_add_cstring_property(connection, kMark, "");
    }
    connections_->ExpectAuthenticated(Clock::now());
  }

  std::optional<TlsTexts> ChangedTls() noexcept {
    try {
      Result<std::optional<TlsTexts>> texts = tls_->ReadIfChanged();
      if (texts.ok()) return std::move(*texts);
      if (report_) report_(texts.status().message() + "; the certificate before it holds on");
    } catch (const std::exception&) {  // Out of memory: keep the earlier certificate.
    }
    return {};
  }

  bool Accepts(std::string_view header) const noexcept {
    try {
      return token_->Accepts(header, Clock::now());
    } catch (const std::exception&) {  // Out of memory: refuse the call.
      return false;
    }
  }

  grpc_ssl_server_certificate_config* ConfigOf(const TlsTexts& texts) {
    expires_ = texts.expires_unix_seconds;
    const grpc_ssl_pem_key_cert_pair pair = {.private_key = texts.key.c_str(),
                                             .cert_chain = texts.certificate.c_str()};
    // gRPC requires authorities even if clients need no certificate.
    const std::string& authorities =
        clients_need_certificates_ ? texts.client_ca : texts.certificate;
    return grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  }

  const bool clients_need_certificates_;
  const std::function<void(const std::string&)> report_;
  std::unique_ptr<TlsFiles> tls_;           // Null without TLS.
  std::unique_ptr<BearerToken> token_;      // Null without tokens.
  OpenConnections* connections_ = nullptr;  // May be null.
  Mutex introducing_;                       // Guards the marks of connections.
  TlsTexts first_;                          // Contents for the first Fetch().
  std::atomic<bool> fetched_ = false;
  std::atomic<int64_t> expires_ = 0;
  std::atomic<uint64_t> refused_calls_ = 0;
};

}  // namespace

Result<std::unique_ptr<Security>> Security::Open(const SecurityOptions& options) {
  auto security = std::make_unique<FileSecurity>(options);
  RETURN_IF_ERROR(security->Read(options));
  return std::unique_ptr<Security>(std::move(security));
}

Status CheckSecurity(const SecurityOptions& options) { return Security::Open(options).status(); }

}  // namespace embershard::rpc
