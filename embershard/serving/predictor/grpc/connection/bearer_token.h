// The tokens of which calls must carry one, in a file that may be replaced.

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

// Thread-safe. It keeps digests, never the tokens.
class BearerToken {
 public:
  // `report`: see SecurityOptions. kInvalidArgument if the file does not hold 1 to 8 tokens, one a
  // line: 16 to 4096 letters, digits and -._~+/=. White space around them and empty lines are
  // ignored.
  static Result<std::unique_ptr<BearerToken>> Open(const std::string& path,
                                                   std::function<void(const std::string&)> report);

  // Whether `header`, the value of "authorization", is "Bearer" and one of the tokens. How long it
  // takes does not tell how much of it is right. Looks whether the file has changed, at most once a
  // second.
  bool Accepts(std::string_view header, Clock::time_point now);

 private:
  BearerToken(std::string path, std::function<void(const std::string&)> report);
  Status Read() REQUIRES(mutex_);
  Status LookLocked() REQUIRES(mutex_);  // Why the file that is new cannot be used.

  const std::string path_;
  const std::function<void(const std::string&)> report_;
  Mutex mutex_;
  FileStamp stamp_ GUARDED_BY(mutex_);                   // Of what was read last.
  std::vector<std::string> digests_ GUARDED_BY(mutex_);  // Of the tokens.
  Clock::time_point next_look_ GUARDED_BY(mutex_);       // When the file is to be reread.
};

}  // namespace embershard::rpc
