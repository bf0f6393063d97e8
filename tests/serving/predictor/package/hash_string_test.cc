#include <gtest/gtest.h>

#include "package/golden.h"
#include "package/id_maps.h"
#include "package/samples.h"

namespace embershard {
namespace {

TEST(HashString, IsXxh3OfTheBytes) {
  // xxHash's own test vector for no bytes and seed 0.
  EXPECT_EQ(static_cast<uint64_t>(HashString("")), 0x2D06800538D394C2U);
}

TEST(HashString, GivesTheIdThatPythonGave) {
  const auto samples = ReadSamples(testing::GoldenFolder(), testing::GoldenManifest());
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  EXPECT_EQ((*samples)[0].values[0], HashString("cyd"));
  EXPECT_EQ((*samples)[1].values[0], HashString("eve"));
}

}  // namespace
}  // namespace embershard
