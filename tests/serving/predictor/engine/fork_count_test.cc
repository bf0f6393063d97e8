#include "engine/fork_count.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace embershard {
namespace {

TEST(ForkCount, DiffersInTheChildAlone) {
  const uint64_t before = ForkCount();
  const pid_t child = fork();
  if (child == 0) _exit(ForkCount() == before + 1 ? 7 : 8);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(ForkCount(), before);
}

}  // namespace
}  // namespace embershard
