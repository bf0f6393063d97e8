#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace embershard {
namespace {

// OpenSSL fails here only when the process is out of memory or has no SHA-256 at
// all: nothing a caller could do.
void Require(bool done) {
  if (done) return;
  std::fputs("embershard: OpenSSL gives no SHA-256\n", stderr);
  std::abort();
}

}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  Require(context_->evp != nullptr && EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}

Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::Update(const void* bytes, size_t size) {
  Require(EVP_DigestUpdate(context_->evp, bytes, size) == 1);
}

std::string Sha256::HexDigest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  Require(EVP_DigestFinal_ex(context_->evp, digest.data(), &size) == 1);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * size);
  for (unsigned int i = 0; i < size; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

std::string Sha256Hex(const void* bytes, size_t size) {
  Sha256 sha256;
  sha256.Update(bytes, size);
  return sha256.HexDigest();
}

}  // namespace embershard
