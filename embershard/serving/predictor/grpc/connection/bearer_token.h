#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_stamp.h"
#include "base/mutex.h"
#include "base/status.h"

namespace embershard::rpc {

// Thread-safe. Keeps digests of the tokens, never the tokens themselves.
class BearerToken {
 public:
  // The file holds 1 to 8 tokens, one per line, each of 16 to 4096 letters, digits and -._~+/=;
  // otherwise this fails with kInvalidArgument. Empty lines and white space around tokens are
  // ignored. `report`: see SecurityOptions.
  static Result<std::unique_ptr<BearerToken>> Open(const std::string& path,
                                                   std::function<void(const std::string&)> report);

  // True if `header`, the value of "authorization", is "Bearer" and one of the tokens. The time it
  // takes does not reveal how much of a token is right. Rereads a changed file, checked at most
  // once a second.
  bool Accepts(std::string_view header, Clock::time_point now);

 private:
  BearerToken(std::string path, std::function<void(const std::string&)> report);
  Status Read() REQUIRES(mutex_);
  Status LookLocked() REQUIRES(mutex_);  // Rereads the file if it changed.

  const std::string path_;
  const std::function<void(const std::string&)> report_;
  Mutex mutex_;
  FileStamp stamp_ GUARDED_BY(mutex_);                   // Stamp of the file when it was read.
  std::vector<std::string> digests_ GUARDED_BY(mutex_);  // Digest of each token.
  Clock::time_point next_look_ GUARDED_BY(mutex_);       // Next time to check the file.
};

}  // namespace embershard::rpc
