#include <gtest/gtest.h>

#include <cstdlib>
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

TEST(Processor, UsesNothingWiderThanTheVariableSays) {
  const Flags all = {"amx_bf16", "avx2", "avx512_bf16", "avx512f", "fma"};
  const auto usable = [&all](const char* widest) {
    setenv("EMBERSHARD_ISA", widest, 1);
    const Flags flags = UsableFlags(all);
    unsetenv("EMBERSHARD_ISA");
    return flags;
  };
  EXPECT_EQ(usable("avx2"), (Flags{"avx2", "fma"}));
  EXPECT_EQ(usable("avx512"), (Flags{"avx2", "avx512f", "fma"}));
  EXPECT_EQ(usable(""), all);
  EXPECT_EQ(UsableFlags(all), all);
}

}  // namespace
}  // namespace embershard
