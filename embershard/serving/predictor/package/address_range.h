// A range of addresses that is reserved first and filled afterwards.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/file.h"
#include "base/status.h"

namespace embershard {

// Page size of the system, in bytes.
size_t PageBytes();

// Owns the addresses and what is mapped there. Touching a part that has not been
// filled ends the process. Sizes and offsets are multiples of PageBytes().
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

  // Begins at a multiple of the huge page size. kInternal when the system has no
  // such range.
  static Result<AddressRange> Reserve(size_t size_bytes);

  std::byte* base() const { return base_; }
  size_t size_bytes() const { return size_bytes_; }

  // Fills a part with private memory of zeros, to be written; in huge pages where
  // the system gives them.
  Status MapMemory(size_t offset, size_t size_bytes);

  // Fills a part with the pages of a file, read-only. The last page may reach
  // past the file's end, where it reads as zeros.
  Status MapFile(size_t offset, size_t size_bytes, const File& file, uint64_t file_offset);

  // Fills a part with the very pages that another range has from a file.
  // REQUIRES: MapFile() has filled all of that.
  Status MapAgain(size_t offset, size_t size_bytes, const AddressRange& other, size_t other_offset);

  // Has what the system holds of a mapped file at hand for the first reader, which would
  // wait a microsecond or so for every few pages otherwise. What it does not hold is read. Advice:
  // where the system takes none, nothing changes.
  void Populate(size_t offset, size_t size_bytes) const;

  // Makes a filled part read-only.
  Status Seal(size_t offset, size_t size_bytes);

 private:
  std::byte* base_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace embershard
