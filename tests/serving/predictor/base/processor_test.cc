#include <gtest/gtest.h>

#include <fstream>

#include "base/core_count.h"
#include "testing/scratch_folder.h"

namespace embershard {
namespace {

using Flags = std::set<std::string>;

Flags FlagsOf(const std::string& text) {
  const testing::ScratchFolder folder;
  std::ofstream(folder.path() / "cpuinfo") << text;
  return ProcessorFlags(folder.path() / "cpuinfo");
}

TEST(Processor, HasTheFlagsOfTheFirstProcessor) {
  EXPECT_EQ(FlagsOf("processor\t: 0\nflags\t\t: fpu avx2 fma\nprocessor\t: 1\nflags\t: no\n"),
            (Flags{"fpu", "avx2", "fma"}));
}

TEST(Processor, HasFeaturesOnArm) {
  EXPECT_EQ(FlagsOf("BogoMIPS\t: 50\nFeatures\t: fp asimd\n"), (Flags{"fp", "asimd"}));
}

TEST(Processor, HasNoneWhereNothingIsSaid) {
  EXPECT_EQ(FlagsOf("processor: 0\n"), Flags{});
  EXPECT_EQ(ProcessorFlags("/no/such/file"), Flags{});
}

}  // namespace
}  // namespace embershard
