#include "package/address_range.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace embershard {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Bytes to populate at a time. Threads that change the process's mappings wait for each such call.
constexpr size_t kPopulatedAtOnce = size_t{1} << 20;

Status MapFailed(const char* what, size_t size_bytes) {
  return Internal("cannot ", what, " ", size_bytes, " bytes: ", std::strerror(errno));
}

}  // namespace

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

AddressRange::~AddressRange() {
  if (base_ != nullptr) munmap(base_, size_bytes_);
}

Result<AddressRange> AddressRange::Reserve(size_t size_bytes) {
  // Reserves enough to begin at a huge page, then unmaps both ends.
  const size_t reserved = size_bytes + kHugePageBytes;
  if (reserved < size_bytes) {
    errno = ENOMEM;
    return MapFailed("reserve", size_bytes);
  }
  void* mapped =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return MapFailed("reserve", size_bytes);
  auto* first = static_cast<std::byte*>(mapped);
  const size_t past = reinterpret_cast<uintptr_t>(first) % kHugePageBytes;
  const size_t before = past == 0 ? 0 : kHugePageBytes - past;
  const size_t after = kHugePageBytes - before;
  if (before > 0) munmap(first, before);
  if (after > 0) munmap(first + before + size_bytes, after);
  AddressRange range;
  range.base_ = first + before;
  range.size_bytes_ = size_bytes;
  return range;
}

Status AddressRange::MapMemory(size_t offset, size_t size_bytes) {
  void* mapped = mmap(base_ + offset, size_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (mapped == MAP_FAILED) return MapFailed("allocate", size_bytes);
  // Failure is ignored, because lookups are only slower without huge pages.
  (void)madvise(mapped, size_bytes, MADV_HUGEPAGE);
  return {};
}

Status AddressRange::MapFile(size_t offset, size_t size_bytes, const File& file,
                             uint64_t file_offset) {
  // MAP_SHARED, although nobody writes, because MapAgain() can only duplicate a shared mapping.
  void* mapped = mmap(base_ + offset, size_bytes, PROT_READ, MAP_SHARED | MAP_FIXED,
                      file.descriptor(), static_cast<off_t>(file_offset));
  if (mapped == MAP_FAILED) return MapFailed("map", size_bytes);
  return {};
}

Status AddressRange::MapAgain(size_t offset, size_t size_bytes, const AddressRange& other,
                              size_t other_offset) {
  // With an old size of zero, mremap() duplicates the old mapping instead of moving it.
  void* mapped = mremap(other.base_ + other_offset, 0, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                        base_ + offset);
  if (mapped == MAP_FAILED) return MapFailed("map again", size_bytes);
  return {};
}

void AddressRange::Populate(size_t offset, size_t size_bytes) const {
#ifdef MADV_POPULATE_READ
  for (size_t done = 0; done < size_bytes; done += kPopulatedAtOnce) {
    const size_t piece = std::min(size_bytes - done, kPopulatedAtOnce);
    if (madvise(base_ + offset + done, piece, MADV_POPULATE_READ) != 0) return;
  }
#else
  (void)offset;
  (void)size_bytes;
#endif
}

Status AddressRange::Seal(size_t offset, size_t size_bytes) {
  if (mprotect(base_ + offset, size_bytes, PROT_READ) != 0) {
    return MapFailed("protect", size_bytes);
  }
  return {};
}

}  // namespace embershard
