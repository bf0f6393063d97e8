#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace embershard {

static_assert(std::endian::native == std::endian::little);

// A read-only view of `size()` values of type T. Does not own the bytes, which must outlive it.
template <class T>
class Unaligned {
  static_assert(std::is_arithmetic_v<T>);

 public:
  Unaligned() = default;
  // `bytes` holds `size` values.
  Unaligned(const void* bytes, size_t size)
      : bytes_(static_cast<const std::byte*>(bytes)), size_(size) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::byte* bytes() const { return bytes_; }

  // REQUIRES: i < size().
  T operator[](size_t i) const {
    T value;
    std::memcpy(&value, bytes_ + i * sizeof(T), sizeof(T));
    return value;
  }

  // REQUIRES: first + count <= size().
  Unaligned Slice(size_t first, size_t count) const {
    return Unaligned(bytes_ + first * sizeof(T), count);
  }

  void CopyTo(T* out) const {
    if (size_ > 0) std::memcpy(out, bytes_, size_ * sizeof(T));
  }

 private:
  const std::byte* bytes_ = nullptr;
  size_t size_ = 0;
};

template <class T>
Unaligned<T> ViewOf(const std::vector<T>& values) {
  return Unaligned<T>(values.data(), values.size());
}

}  // namespace embershard
