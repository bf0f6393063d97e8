#include "base/memory_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace embershard {
namespace {

TEST(MemoryFile, IsReadByItsPathAndCannotBeChanged) {
  const std::string bytes(100'000, 'x');
  const Result<File> file = MakeMemoryFile(bytes);
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::ifstream stream(MemoryFilePath(*file), std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), bytes);
  EXPECT_LT(pwrite(file->descriptor(), "y", 1, 0), 0);
  EXPECT_NE(ftruncate(file->descriptor(), 0), 0);
}

}  // namespace
}  // namespace embershard
