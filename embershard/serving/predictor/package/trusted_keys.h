// Whose packages are loaded: public keys, and what they have signed.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace embershard {

// Ed25519 (RFC 8032). Immutable: any thread may read.
class TrustedKeys {
 public:
  static constexpr size_t kSignatureBytes = 64;

  // The public keys in a PEM file, at least one. kInvalidArgument, with its path, where it has
  // none, or one of another kind.
  static Result<std::shared_ptr<const TrustedKeys>> Read(const std::string& path);

  TrustedKeys(const TrustedKeys&) = delete;
  TrustedKeys& operator=(const TrustedKeys&) = delete;
  ~TrustedKeys();

  // The file that they are from.
  const std::string& path() const;

  // Whether `signature` is one of `bytes` by any of the keys.
  bool HaveSigned(std::string_view bytes, std::string_view signature) const;

 private:
  struct Keys;
  explicit TrustedKeys(std::unique_ptr<Keys> keys);
  const std::unique_ptr<Keys> keys_;
};

// Where the signature of a package lies: beside its folder, since nothing in there may change.
std::filesystem::path SignatureFile(const std::filesystem::path& package);

// Refuses (kBadPackage) a package whose signature is missing, or not by one of the keys.
// `signed_bytes`: what manifest.sha256 holds, from which every byte of the package follows.
Status CheckSignature(const std::filesystem::path& package, std::string_view signed_bytes,
                      const TrustedKeys& keys);

}  // namespace embershard
