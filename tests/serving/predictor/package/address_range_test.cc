#include "package/address_range.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "testing/scratch_folder.h"

namespace embershard {
namespace {

TEST(AddressRange, BeginsAtAHugePage) {
  Result<AddressRange> range = AddressRange::Reserve(3 * PageBytes());
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->size_bytes(), 3 * PageBytes());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(range->base()) % (2U << 20), 0U);
}

TEST(AddressRange, GivesMemoryOfZerosThatCanBeWritten) {
  Result<AddressRange> range = AddressRange::Reserve(2 * PageBytes());
  ASSERT_TRUE(range.ok());
  ASSERT_TRUE(range->MapMemory(PageBytes(), PageBytes()).ok());
  std::byte* const memory = range->base() + PageBytes();
  EXPECT_EQ(memory[0], std::byte{0});
  memory[PageBytes() - 1] = std::byte{7};
  ASSERT_TRUE(range->Seal(PageBytes(), PageBytes()).ok());
  EXPECT_EQ(memory[PageBytes() - 1], std::byte{7});
}

TEST(AddressRange, MapsFilesBehindOneAnother) {
  const testing::ScratchFolder folder;
  Result<AddressRange> range = AddressRange::Reserve(2 * PageBytes());
  ASSERT_TRUE(range.ok());
  for (const size_t place : {0, 1}) {
    const std::string path = folder.path() / std::to_string(place);
    std::ofstream(path) << std::string(PageBytes(), 'x') << "page " << place;
    const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(range->MapFile(place * PageBytes(), PageBytes(), file, PageBytes()).ok());
  }
  // The files are closed by now. Their bytes are mapped, with zeros after them.
  EXPECT_EQ(std::memcmp(range->base(), "page 0\0", 7), 0);
  EXPECT_EQ(std::memcmp(range->base() + PageBytes(), "page 1\0", 7), 0);
}

// How often this thread had to wait for a page.
long Faults() {
  rusage usage;
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt + usage.ru_majflt;
}

// How many pages begin with `byte`. A sanitizer's own memory would have faults of its own.
__attribute__((no_sanitize("address"), no_sanitize("thread"))) size_t
CountFirst(const std::byte* base, size_t pages, std::byte byte) {
  const size_t page_bytes = PageBytes();
  size_t count = 0;
  for (size_t page = 0; page < pages; ++page) {
    if (base[page * page_bytes] == byte) ++count;
  }
  return count;
}

TEST(AddressRange, WhoReadsPopulatedPagesWaitsForNone) {
  constexpr size_t kPages = 1000;
  const testing::ScratchFolder folder;
  const std::string path = folder.path() / "pages";
  std::ofstream(path) << std::string(kPages * PageBytes(), 'x');
  Result<AddressRange> range = AddressRange::Reserve(kPages * PageBytes());
  ASSERT_TRUE(range.ok());
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(range->MapFile(0, kPages * PageBytes(), file, 0).ok());
  if (madvise(range->base(), PageBytes(), MADV_POPULATE_READ) != 0) GTEST_SKIP() << "an old Linux";
  range->Populate(0, kPages * PageBytes());
  const long populated = Faults();
  const size_t count = CountFirst(range->base(), kPages, std::byte{'x'});
  EXPECT_EQ(count, kPages);
  EXPECT_LT(Faults() - populated, 5);  // The code itself may have to be paged in.
}

TEST(AddressRange, MovesWithWhatIsMapped) {
  Result<AddressRange> range = AddressRange::Reserve(PageBytes());
  ASSERT_TRUE(range.ok());
  ASSERT_TRUE(range->MapMemory(0, PageBytes()).ok());
  std::byte* const base = range->base();
  const AddressRange moved = std::move(*range);
  EXPECT_EQ(moved.base(), base);
  EXPECT_EQ(range->base(), nullptr);
  base[0] = std::byte{1};
}

TEST(AddressRange, RefusesMoreThanTheSystemHas) {
  const Result<AddressRange> huge = AddressRange::Reserve(size_t{1} << 62);
  EXPECT_EQ(huge.status().code(), StatusCode::kInternal);
  const Result<AddressRange> overflowing = AddressRange::Reserve(~size_t{0} << 12);
  EXPECT_EQ(overflowing.status().code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace embershard
