#include "base/file_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"

namespace embershard {
namespace {

int64_t Nanoseconds(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FileStamp FileStamp::Of(const std::string& path) {
  struct stat file = {};
  if (stat(path.c_str(), &file) != 0) return {};
  return {.device = file.st_dev,
          .inode = file.st_ino,
          .bytes = file.st_size,
          .modified_ns = Nanoseconds(file.st_mtim),
          .changed_ns = Nanoseconds(file.st_ctim)};
}

Result<std::string> ReadSmallFile(const std::string& path, size_t most) {
  // O_NONBLOCK, because opening a pipe would wait for a writer.
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return InvalidArgument(path, ": ", std::strerror(errno));
  struct stat what = {};
  if (fstat(file.descriptor(), &what) != 0 || !S_ISREG(what.st_mode)) {
    return InvalidArgument(path, ": expected a file");
  }
  std::string text(most + 1, '\0');
  text.resize(file.ReadAt(0, text.data(), text.size()));
  if (text.size() > most) {
    return InvalidArgument(path, ": expected at most ", most, " bytes");
  }
  return text;
}

}  // namespace embershard
