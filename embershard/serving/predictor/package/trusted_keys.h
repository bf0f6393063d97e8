#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace embershard {

// Ed25519 keys (RFC 8032). Immutable, thus thread-safe.
class TrustedKeys {
 public:
  static constexpr size_t kSignatureBytes = 64;

  // kInvalidArgument, naming the path, if the PEM file has no key or a key of another kind.
  static Result<std::shared_ptr<const TrustedKeys>> Read(const std::string& path);

  TrustedKeys(const TrustedKeys&) = delete;
  TrustedKeys& operator=(const TrustedKeys&) = delete;
  ~TrustedKeys();

  const std::string& path() const;

  // True for a signature by any of the keys.
  bool HaveSigned(std::string_view bytes, std::string_view signature) const;

 private:
  struct Keys;
  explicit TrustedKeys(std::unique_ptr<Keys> keys);
  const std::unique_ptr<Keys> keys_;
};

// Path of a package's signature. It is next to the folder, because the folder must not change.
std::filesystem::path SignatureFile(const std::filesystem::path& package);

// Fails with kBadPackage if the signature is missing, or not by one of the keys. `signed_bytes` is
// the content of manifest.sha256, which determines every byte of the package.
Status CheckSignature(const std::filesystem::path& package, std::string_view signed_bytes,
                      const TrustedKeys& keys);

}  // namespace embershard
