// How a compiled program runs: tests/cli/test_compile.py, which compiles one.

#include "dense/aot_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "testing/scratch_folder.h"

namespace embershard {
namespace {

TEST(AotProgram, AFileThatIsNoneIsABadPackage) {
  const testing::ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "dense.pt2";
  std::ofstream(file) << "nothing";
  const Status status = LoadAotProgram(file, Schema(), {.threads = 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_NE(status.message().find("/dense.pt2: "), std::string::npos) << status.message();
}

TEST(AotProgram, TorchSaysItsVersionWithoutWhatItWasBuiltFor) {
  const std::string version = TorchVersion();
  EXPECT_EQ(std::count(version.begin(), version.end(), '.'), 2) << version;
  EXPECT_EQ(version.find('+'), std::string::npos) << version;
}

}  // namespace
}  // namespace embershard
