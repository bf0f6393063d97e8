#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace embershard {

// Inode, size and times of a file, after following links. All zero if there is no file.
struct FileStamp {
  static FileStamp Of(const std::string& path);
  bool operator==(const FileStamp&) const = default;

  dev_t device = 0;
  ino_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
};

// kInvalidArgument, with the path, if the file is missing, unreadable or above `most` bytes.
Result<std::string> ReadSmallFile(const std::string& path, size_t most);

}  // namespace embershard
