#include "base/freed_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <string>
#include <thread>
#include <vector>

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

void WriteAndFree(size_t bytes = kBytes) {
  char* const memory = static_cast<char*>(std::malloc(bytes));
  std::memset(memory, 1, bytes);
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

// How many lots of memory threads allocate from, by what the C library tells.
int Lots() {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const told = open_memstream(&text, &size);
  malloc_info(0, told);
  std::fclose(told);
  const std::string all(text, size);
  std::free(text);
  int lots = 0;
  for (size_t at = all.find("<heap "); at != all.npos; at = all.find("<heap ", at + 1)) ++lots;
  return lots;
}

constexpr int kLotsBefore = 2;
constexpr int kThreads = 12;

// Likewise: ends with how many lots there are when kThreads threads have allocated.
[[noreturn]] void AllocateOnThreads(bool own) {
  mallopt(M_ARENA_MAX, kLotsBefore);
  if (own) GiveThreadsOwnMemory();
  std::latch all_have(kThreads);
  std::latch told(1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      WriteAndFree(1 << 16);
      all_have.count_down();
      told.wait();
    });
  }
  all_have.wait();
  const int lots = Lots();
  told.count_down();
  for (std::thread& thread : threads) thread.join();
  std::_Exit(lots);
}

TEST(OwnMemoryDeathTest, EachThreadHasALot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(AllocateOnThreads(true), ::testing::ExitedWithCode(1 + kThreads), "");  // 1: main's.
}

TEST(OwnMemoryDeathTest, ThreadsShareWhereTheyAreNotGiven) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(AllocateOnThreads(false), ::testing::ExitedWithCode(kLotsBefore), "");
}

TEST(OwnMemoryDeathTest, TheEnvironmentIsHeeded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ASSERT_EQ(setenv("MALLOC_ARENA_MAX", "2", 1), 0);
  EXPECT_EXIT(AllocateOnThreads(true), ::testing::ExitedWithCode(kLotsBefore), "");
  ASSERT_EQ(unsetenv("MALLOC_ARENA_MAX"), 0);
}

}  // namespace
}  // namespace embershard

#endif
