// A range of addresses that is first reserved and then filled.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace embershard {

size_t PageBytes();

// Owns the addresses and their mappings. Access to a part that has not been filled ends the
// process. All sizes and offsets are multiples of PageBytes().
class AddressRange {
 public:
  AddressRange() = default;
  AddressRange(AddressRange&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  AddressRange& operator=(AddressRange&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~AddressRange();

  // Begins at a multiple of the huge page size. kInternal if the system has no such range.
  static Result<AddressRange> Reserve(size_t size_bytes);

  std::byte* base() const { return base_; }
  size_t size_bytes() const { return size_bytes_; }

  // Private, writable memory of zeros, in huge pages if the system has them.
  Status MapMemory(size_t offset, size_t size_bytes);

  // Maps pages of a file, read-only. The last page may extend past the end of the file, where it
  // reads as zeros.
  Status MapFile(size_t offset, size_t size_bytes, const File& file, uint64_t file_offset);

  // Maps the same file pages as a part of another range. REQUIRES: that part is of MapFile().
  Status MapAgain(size_t offset, size_t size_bytes, const AddressRange& other, size_t other_offset);

  // Maps the pages of a mapped file in advance, and reads those that are not in the page cache.
  // Otherwise the first access waits about a microsecond for every few pages. Does nothing if the
  // system does not support it.
  void Populate(size_t offset, size_t size_bytes) const;

  Status Seal(size_t offset, size_t size_bytes);

 private:
  std::byte* base_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace embershard
