#include "base/bus_error.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "testing/scratch_folder.h"

namespace embershard {
namespace {

// Maps a file of one page, empties it, and reads the page.
void ReadWhatIsNoLongerThere(const std::filesystem::path& path) {
  constexpr size_t kPage = 4096;
  const File file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(file.descriptor(), kPage), 0);
  void* const page = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  ASSERT_NE(page, MAP_FAILED);
  ASSERT_EQ(ftruncate(file.descriptor(), 0), 0);
  ExplainBusErrors();
  const volatile char* const byte = static_cast<const char*>(page);
  FAIL() << "read " << int{*byte};
}

TEST(BusErrorDeathTest, EndsTheProcessAsEverAfterAWordOfWhy) {
  const testing::ScratchFolder scratch;
  EXPECT_EXIT(ReadWhatIsNoLongerThere(scratch.path() / "table"), ::testing::KilledBySignal(SIGBUS),
              "a file of the package became shorter while it was served");
}

}  // namespace
}  // namespace embershard
