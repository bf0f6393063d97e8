#include <gtest/gtest.h>

#include "dense/dense_program.h"
#include "testing/paths.h"
#include "testing/scratch_folder.h"

namespace embershard {
namespace {

TEST(LoadFbgemmOperators, NamesTheLibraryThatIsMissing) {
  const testing::ScratchFolder empty;
  const Status status = LoadFbgemmOperators(empty.path());
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find((empty.path() / "fbgemm_gpu_config.so").string()),
            std::string::npos)
      << status.message();
}

TEST(LoadFbgemmOperators, MayBeCalledAgain) {
  EXPECT_TRUE(LoadFbgemmOperators(testing::FbgemmFolder()).ok());
  EXPECT_TRUE(LoadFbgemmOperators(testing::FbgemmFolder()).ok());
}

}  // namespace
}  // namespace embershard
