#include "base/freed_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

// The C library's own allocation, which sanitizers replace.
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace embershard {
namespace {

constexpr size_t kBytes = 40 << 20;  // By default the C library never keeps as much.

long PageFaults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void WriteAndFree() {
  char* const memory = static_cast<char*>(std::malloc(kBytes));
  std::memset(memory, 1, kBytes);
  asm volatile("" : : "r"(memory) : "memory");  // It might be read, so the writing stays.
  std::free(memory);
}

// In a process of its own, since it holds for the whole of it: ends with 0 where freed memory
// was kept, 1 where each page was cleared anew.
[[noreturn]] void AllocateTwiceOnAThread(bool keep) {
  if (keep) KeepFreedMemory();
  bool kept = false;
  std::thread([&kept] {
    WriteAndFree();
    const long before = PageFaults();
    WriteAndFree();
    // Of 4 KiB each; huge pages need fewer.
    kept = PageFaults() - before < 16;
  }).join();
  std::_Exit(kept ? 0 : 1);
}

TEST(FreedMemoryDeathTest, IsUsedAgainWithoutPageFaults) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(AllocateTwiceOnAThread(true), ::testing::ExitedWithCode(0), "");
}

TEST(FreedMemoryDeathTest, GoesBackToTheSystemWhereItIsNotKept) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(AllocateTwiceOnAThread(false), ::testing::ExitedWithCode(1), "");
}

TEST(FreedMemoryDeathTest, TheEnvironmentIsHeeded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_EQ(setenv("MALLOC_MMAP_THRESHOLD_", "65536", 1), 0);
  EXPECT_EXIT(AllocateTwiceOnAThread(true), ::testing::ExitedWithCode(1), "");
  ASSERT_EQ(unsetenv("MALLOC_MMAP_THRESHOLD_"), 0);
}

}  // namespace
}  // namespace embershard

#endif
