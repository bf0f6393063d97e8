#include "package/trusted_keys.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>
#include <vector>

#include "base/file_stamp.h"
#include "package/manifest.h"
#include "package/refusal.h"

namespace embershard {
namespace {

constexpr size_t kFileBytesMax = 1 << 16;

struct OpenSslDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, OpenSslDeleter>;

// The content between a BEGIN line and an END line, of any kind.
class PemBlock {
 public:
  // There is no block at the end, or if it is broken; OpenSSL's last error distinguishes the two.
  explicit PemBlock(BIO* pem) { PEM_read_bio(pem, &name_, &header_, &data_, &size_); }
  PemBlock(const PemBlock&) = delete;
  PemBlock& operator=(const PemBlock&) = delete;
  ~PemBlock() {
    OPENSSL_free(name_);
    OPENSSL_free(header_);
    OPENSSL_free(data_);
  }

  explicit operator bool() const { return name_ != nullptr; }

  // Null if the block is not a public key.
  Key PublicKey() const {
    if (std::string_view(name_) != PEM_STRING_PUBLIC) return nullptr;
    const unsigned char* data = data_;
    return Key(d2i_PUBKEY(nullptr, &data, size_));
  }

 private:
  char* name_ = nullptr;
  char* header_ = nullptr;
  unsigned char* data_ = nullptr;
  long size_ = 0;  // NOLINT: OpenSSL's own type.
};

const unsigned char* BytesOf(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

bool HasSigned(EVP_PKEY* key, std::string_view bytes, std::string_view signature) {
  const std::unique_ptr<EVP_MD_CTX, OpenSslDeleter> context(EVP_MD_CTX_new());
  return context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), BytesOf(signature), signature.size(), BytesOf(bytes),
                          bytes.size()) == 1;
}

}  // namespace

struct TrustedKeys::Keys {
  std::string path;
  std::vector<std::shared_ptr<EVP_PKEY>> keys;
};

Result<std::shared_ptr<const TrustedKeys>> TrustedKeys::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kFileBytesMax));
  const std::unique_ptr<BIO, OpenSslDeleter> pem(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  auto keys = std::make_unique<Keys>();
  keys->path = path;
  ERR_clear_error();
  bool all_good = true;
  while (const PemBlock block{pem.get()}) {
    Key key = block.PublicKey();
    all_good = all_good && key != nullptr && EVP_PKEY_id(key.get()) == EVP_PKEY_ED25519;
    keys->keys.push_back(std::move(key));
  }
  // At the end of the text there is no further start line.
  const bool is_whole = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (!is_whole || !all_good || keys->keys.empty()) {
    return InvalidArgument(path, ": expected public keys in PEM, at least one, all Ed25519");
  }
  return std::shared_ptr<const TrustedKeys>(new TrustedKeys(std::move(keys)));
}

TrustedKeys::TrustedKeys(std::unique_ptr<Keys> keys) : keys_(std::move(keys)) {}
TrustedKeys::~TrustedKeys() = default;

const std::string& TrustedKeys::path() const { return keys_->path; }

bool TrustedKeys::HaveSigned(std::string_view bytes, std::string_view signature) const {
  bool is_signed = false;
  for (const auto& key : keys_->keys) {
    is_signed = is_signed || HasSigned(key.get(), bytes, signature);
  }
  ERR_clear_error();
  return is_signed;
}

std::filesystem::path SignatureFile(const std::filesystem::path& package) {
  std::filesystem::path file = package;
  file += ".sig";
  return file;
}

Status CheckSignature(const std::filesystem::path& package, std::string_view signed_bytes,
                      const TrustedKeys& keys) {
  const std::filesystem::path file = SignatureFile(package);
  const std::string name = file.filename().string();
  const Result<std::string> signature = ReadSmallFile(file, kFileBytesMax);
  if (!signature.ok()) {
    return Refusal(name, "file", "a signature by a key in " + keys.path(), "none");
  }
  if (signature->size() != TrustedKeys::kSignatureBytes) {
    return Refusal(name, "bytes", std::to_string(TrustedKeys::kSignatureBytes),
                   std::to_string(signature->size()));
  }
  if (keys.HaveSigned(signed_bytes, *signature)) return {};
  return Refusal(name, "signature",
                 std::string("one of ") + kManifestDigestFile + " by a key in " + keys.path(),
                 "another");
}

}  // namespace embershard
