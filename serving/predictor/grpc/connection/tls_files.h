// The files of a server's TLS, read again when they change.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/file_stamp.h"
#include "base/mutex.h"
#include "base/status.h"
#include "grpc/connection/security_options.h"

namespace embershard::rpc {

// What is in them, in PEM.
struct TlsTexts {
  std::string certificate;
  std::string key;
  std::string client_ca;  // Empty: clients need no certificate.
  int64_t expires_unix_seconds = 0;
};

// Thread-safe.
class TlsFiles {
 public:
  // Of `options`, the three paths.
  explicit TlsFiles(const SecurityOptions& options);

  // What is new in the files since the last time, if it can be used: a certificate that is not
  // expired, the key that belongs to it, and clients' authorities. Nothing where they have not
  // changed. kInvalidArgument, once for each change, where they cannot be used: perhaps one of them
  // is still to be replaced.
  Result<std::optional<TlsTexts>> ReadIfChanged();

 private:
  using Stamps = std::array<FileStamp, 3>;

  Stamps StampsNow() const;
  Result<TlsTexts> Read() const;

  const std::string certificate_;
  const std::string key_;
  const std::string client_ca_;
  Mutex mutex_;
  std::optional<Stamps> read_ GUARDED_BY(mutex_);  // Of what was read last.
};

}  // namespace embershard::rpc
