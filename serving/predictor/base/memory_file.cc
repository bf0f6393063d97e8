#include "base/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace embershard {
namespace {

Status Failed(const char* what) {
  return Internal("cannot ", what, " a file in memory: ", std::strerror(errno));
}

}  // namespace

Result<File> MakeMemoryFile(std::string_view bytes) {
  File file(memfd_create("embershard", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) return Failed("make");
  while (!bytes.empty()) {
    const ssize_t written = write(file.descriptor(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  constexpr int kSeals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
  if (fcntl(file.descriptor(), F_ADD_SEALS, kSeals) != 0) return Failed("seal");
  return file;
}

std::string MemoryFilePath(const File& file) {
  return "/proc/self/fd/" + std::to_string(file.descriptor());
}

}  // namespace embershard
