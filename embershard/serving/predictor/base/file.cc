#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace embershard {

File::~File() {
  if (is_open()) close(descriptor_);
}

uint64_t File::size_bytes() const {
  struct stat status;
  if (fstat(descriptor_, &status) != 0) return 0;
  return static_cast<uint64_t>(status.st_size);
}

size_t File::ReadAt(uint64_t offset, void* out, size_t size) const {
  size_t done = 0;
  while (done < size) {
    const ssize_t count = pread(descriptor_, static_cast<std::byte*>(out) + done, size - done,
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  return done;
}

}  // namespace embershard
