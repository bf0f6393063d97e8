#include "base/unaligned.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace embershard {
namespace {

// 1, -2, 3 as int32, one byte off every alignment.
constexpr std::array<unsigned char, 13> kBytes = {0xAA, 1,    0, 0, 0, 0xFE, 0xFF,
                                                  0xFF, 0xFF, 3, 0, 0, 0};

TEST(Unaligned, ReadsLittleEndianValuesAtAnyAddress) {
  const Unaligned<int32_t> view(kBytes.data() + 1, 3);
  ASSERT_EQ(view.size(), 3U);
  EXPECT_EQ(view[0], 1);
  EXPECT_EQ(view[1], -2);
  EXPECT_EQ(view[2], 3);
}

TEST(Unaligned, SliceCountsValuesNotBytes) {
  const Unaligned<int32_t> slice = Unaligned<int32_t>(kBytes.data() + 1, 3).Slice(1, 2);
  ASSERT_EQ(slice.size(), 2U);
  EXPECT_EQ(slice[0], -2);
  EXPECT_EQ(slice[1], 3);
}

TEST(Unaligned, CopiesAllOfItsValues) {
  std::vector<int32_t> values(3);
  Unaligned<int32_t>(kBytes.data() + 1, 3).CopyTo(values.data());
  EXPECT_EQ(values, (std::vector<int32_t>{1, -2, 3}));
}

TEST(Unaligned, EmptyViewCopiesNothingFromNowhere) {
  const Unaligned<float> view;
  EXPECT_TRUE(view.empty());
  view.CopyTo(nullptr);
  EXPECT_TRUE(view.Slice(0, 0).empty());
}

}  // namespace
}  // namespace embershard
