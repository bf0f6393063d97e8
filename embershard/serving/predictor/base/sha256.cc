#include "base/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace embershard {
namespace {

// OpenSSL fails here only if memory runs out or if it has no SHA-256, which no caller can handle.
void Require(bool done) {
  if (done) return;
  std::fputs("embershard: OpenSSL gives no SHA-256\n", stderr);
  std::abort();
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  Require(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::Update(const void* bytes, size_t size) {
  Require(EVP_DigestUpdate(context_.get(), bytes, size) == 1);
}

std::string Sha256::HexDigest() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  Require(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1);
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
