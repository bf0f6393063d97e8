#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace embershard {

// Owns a file descriptor.
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File();

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  // The descriptor, which is the caller's to close from now on.
  int Release() { return std::exchange(descriptor_, -1); }

  // Size of the moment; 0 where the system does not say.
  uint64_t size_bytes() const;

  // Reads `size` bytes from `offset` on, and returns how many there were: fewer
  // only when the file ends before, or cannot be read.
  size_t ReadAt(uint64_t offset, void* out, size_t size) const;

 private:
  int descriptor_ = -1;
};

}  // namespace embershard
