#ifndef EMBERSHARD_BASE_SHA256_H_
#define EMBERSHARD_BASE_SHA256_H_

#include <cstddef>
#include <memory>
#include <string>

namespace embershard {

// The SHA-256 of bytes that come in chunks.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void Update(const void* bytes, size_t size);

  // 64 lower-case hex digits. REQUIRES: called once, last.
  std::string HexDigest();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string Sha256Hex(const void* bytes, size_t size);

}  // namespace embershard

#endif  // EMBERSHARD_BASE_SHA256_H_
