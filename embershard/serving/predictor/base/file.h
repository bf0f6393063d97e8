#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace embershard {

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

  // The caller must close the descriptor.
  int Release() { return std::exchange(descriptor_, -1); }

  // Current size; 0 if the system does not report it.
  uint64_t size_bytes() const;

  // Returns the number of bytes read: less than `size` only at the end of the file or on an error.
  size_t ReadAt(uint64_t offset, void* out, size_t size) const;

 private:
  int descriptor_ = -1;
};

}  // namespace embershard
