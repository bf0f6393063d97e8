#include "grpc/connection/tls_files.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstddef>
#include <ctime>
#include <memory>
#include <utility>

namespace embershard::rpc {
namespace {

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

// Null where there is none.
Certificate FirstCertificate(const std::string& pem) {
  return Certificate(PEM_read_bio_X509(BytesOf(pem).get(), nullptr, nullptr, nullptr));
}

// Null where there is none, or one behind a password: nobody is here to be asked for it.
Key PrivateKey(const std::string& pem) {
  const auto no_password = [](char*, int, int, void*) { return -1; };
  return Key(PEM_read_bio_PrivateKey(BytesOf(pem).get(), nullptr, no_password, nullptr));
}

// Nothing where the time cannot be read.
std::optional<int64_t> UnixSeconds(const ASN1_TIME* time) {
  tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return static_cast<int64_t>(timegm(&parts));
}

// Leaves nothing in OpenSSL's queue of this thread, which gRPC reads too.
struct ErrorsCleared {
  ~ErrorsCleared() { ERR_clear_error(); }
};

}  // namespace

TlsFiles::TlsFiles(const SecurityOptions& options)
    : certificate_(options.certificate), key_(options.key), client_ca_(options.client_ca) {}

Result<std::optional<TlsTexts>> TlsFiles::ReadIfChanged() {
  MutexLock lock(mutex_);
  // Looked at before they are read: what changes meanwhile is read again the next time.
  const Stamps now = StampsNow();
  if (read_ == now) return std::optional<TlsTexts>();
  Result<TlsTexts> texts = Read();
  read_ = now;
  if (!texts.ok()) return texts.status();
  return std::optional<TlsTexts>(std::move(*texts));
}

TlsFiles::Stamps TlsFiles::StampsNow() const {
  return {FileStamp::Of(certificate_), FileStamp::Of(key_),
          client_ca_.empty() ? FileStamp() : FileStamp::Of(client_ca_)};
}

Result<TlsTexts> TlsFiles::Read() const {
  const ErrorsCleared cleared;
  TlsTexts texts;
  for (const auto& [path, text] : {std::pair(&certificate_, &texts.certificate),
                                   {&key_, &texts.key},
                                   {&client_ca_, &texts.client_ca}}) {
    if (path->empty()) continue;
    ASSIGN_OR_RETURN(*text, ReadSmallFile(*path, kFileBytesMax));
  }
  const Certificate certificate = FirstCertificate(texts.certificate);
  if (certificate == nullptr) return InvalidArgument(certificate_, ": expected a PEM certificate");
  const Key key = PrivateKey(texts.key);
  if (key == nullptr) return InvalidArgument(key_, ": expected a PEM key without a password");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return InvalidArgument(key_, ": expected the key of the certificate in ", certificate_,
                           ", got another");
  }
  const std::optional<int64_t> expires = UnixSeconds(X509_get0_notAfter(certificate.get()));
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

}  // namespace embershard::rpc
