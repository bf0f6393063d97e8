#include "base/split_mix.h"

#include <gtest/gtest.h>

namespace embershard {
namespace {

// Seed 0 of the reference implementation.
TEST(SplitMix64, GivesTheRowOfTheReference) {
  EXPECT_EQ(SplitMix64(0, 1), 0xe220a8397b1dcdafU);
  EXPECT_EQ(SplitMix64(0, 2), 0x6e789e6aa1b965f4U);
  EXPECT_EQ(SplitMix64(0, 3), 0x06c45d188009454fU);
}

TEST(UnitInterval, ReachesZeroAndNeverOne) {
  EXPECT_EQ(UnitInterval(0), 0.0);
  EXPECT_EQ(UnitInterval(uint64_t{1} << 63), 0.5);
  EXPECT_LT(UnitInterval(~uint64_t{0}), 1.0);
}

}  // namespace
}  // namespace embershard
