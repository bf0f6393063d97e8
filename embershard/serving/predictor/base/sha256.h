#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX.

namespace embershard {

class Sha256 {
 public:
  Sha256();

  void Update(const void* bytes, size_t size);

  // Lower-case hex digits. REQUIRES: called once, after all updates.
  std::string HexDigest();

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string Sha256Hex(const void* bytes, size_t size);

}  // namespace embershard
