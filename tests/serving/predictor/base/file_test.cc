#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

#include "testing/scratch_folder.h"

namespace embershard {
namespace {

class FileTest : public ::testing::Test {
 protected:
  // A file of "0123456789".
  File Open() {
    const std::string path = folder_.path() / "digits";
    std::ofstream(path) << "0123456789";
    return File(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  }

  testing::ScratchFolder folder_;
};

TEST_F(FileTest, ReadsFromAnyPlace) {
  const File file = Open();
  ASSERT_TRUE(file.is_open());
  EXPECT_EQ(file.size_bytes(), 10U);
  std::string read(4, '\0');
  EXPECT_EQ(file.ReadAt(3, read.data(), read.size()), 4U);
  EXPECT_EQ(read, "3456");
}

TEST_F(FileTest, ReadsLessWhereTheFileEnds) {
  const File file = Open();
  std::string read(4, '.');
  EXPECT_EQ(file.ReadAt(8, read.data(), read.size()), 2U);
  EXPECT_EQ(read, "89..");
  EXPECT_EQ(file.ReadAt(10, read.data(), read.size()), 0U);
}

TEST_F(FileTest, ClosesItsDescriptorOnce) {
  int descriptor = -1;
  {
    File file = Open();
    descriptor = file.descriptor();
    const File moved = std::move(file);
    EXPECT_NE(fcntl(descriptor, F_GETFD), -1);
    EXPECT_EQ(moved.descriptor(), descriptor);
  }
  EXPECT_EQ(fcntl(descriptor, F_GETFD), -1);
}

TEST_F(FileTest, NotOpenedReadsNothing) {
  const File file;
  char byte = 0;
  EXPECT_FALSE(file.is_open());
  EXPECT_EQ(file.size_bytes(), 0U);
  EXPECT_EQ(file.ReadAt(0, &byte, 1), 0U);
}

}  // namespace
}  // namespace embershard
