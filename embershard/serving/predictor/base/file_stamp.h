#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace embershard {

// Tells whether a file, reached through whatever links, is the one it was: same place, size and
// times. All zero where there is none.
struct FileStamp {
  static FileStamp Of(const std::string& path);
  bool operator==(const FileStamp&) const = default;

  dev_t device = 0;
  ino_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
};

// All of a file of at most `most` bytes. kInvalidArgument, with its path, where there is none, it
// cannot be read, or it is larger.
Result<std::string> ReadSmallFile(const std::string& path, size_t most);

}  // namespace embershard
