// How a compiled program runs: tests/cli/test_compile.py, which compiles one.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "dense/dense_program.h"

namespace embershard {
namespace {

TEST(AotProgram, BytesThatAreNoneAreABadPackage) {
  const Status status =
      LoadAotProgram({.name = "programs/dense.pt2", .bytes = "nothing"}, Schema(), {.threads = 1})
          .status();
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_TRUE(status.message().starts_with("programs/dense.pt2: ")) << status.message();
}

TEST(AotProgram, TorchSaysItsVersionWithoutWhatItWasBuiltFor) {
  const std::string version = TorchVersion();
  EXPECT_EQ(std::count(version.begin(), version.end(), '.'), 2) << version;
  EXPECT_EQ(version.find('+'), std::string::npos) << version;
}

}  // namespace
}  // namespace embershard
