#include "package/samples.h"

#include <gtest/gtest.h>

#include <vector>

#include "package/golden.h"

namespace embershard {
namespace {

// tests/golden/generate.py made them.
TEST(Samples, HoldTheGoldenRequests) {
  const auto samples = ReadSamples(testing::GoldenFolder(), testing::GoldenManifest());
  ASSERT_TRUE(samples.ok()) << samples.status().message();
  ASSERT_EQ(samples->size(), 2U);
  const SampleRequest& first = (*samples)[0];
  EXPECT_EQ(first.num_examples, 3U);
  EXPECT_EQ(first.request_dense, (std::vector<float>{0.125F}));
  EXPECT_EQ(first.example_dense, (std::vector<float>{-0.5F, 0.0F, 0.5F}));
  // One list of users, one of tags, three of items.
  EXPECT_EQ(first.lengths, (std::vector<int32_t>{1, 3, 1, 2, 3}));
  ASSERT_EQ(first.values.size(), 10U);
  EXPECT_EQ((std::vector<int64_t>(first.values.begin() + 1, first.values.end())),
            (std::vector<int64_t>{7, -1, int64_t{1} << 62, 0, 599, 1, 512, 511, 3}));
  EXPECT_EQ(first.weights, (std::vector<float>{0.5F, 2.0F, -1.0F}));
  ASSERT_EQ(first.outputs.size(), 2U);
  EXPECT_EQ(first.outputs[0].size(), 3U);
  // "profile" is the first two columns of user row 2: (16 r + c) / 128 - 1.
  EXPECT_EQ(first.outputs[1], (std::vector<float>{-0.75F, -0.7421875F}));

  const SampleRequest& second = (*samples)[1];
  EXPECT_EQ(second.num_examples, 2U);
  EXPECT_EQ(second.lengths, (std::vector<int32_t>{1, 0, 0, 1}));
  EXPECT_TRUE(second.weights.empty());
}

TEST(Samples, AreRefusedBeyondTheLimits) {
  Manifest manifest = testing::GoldenManifest();
  manifest.limits.max_examples = 2;
  EXPECT_EQ(ReadSamples(testing::GoldenFolder(), manifest).status().message(),
            "samples.safetensors: 0/example_dense: expected 1 .. 2 examples, got 3");
  manifest.limits = {.max_examples = 3, .max_ids = 9};
  EXPECT_EQ(ReadSamples(testing::GoldenFolder(), manifest).status().message(),
            "samples.safetensors: 0/values: expected at most 9 ids, got 10");
}

TEST(Samples, AreRefusedForAnotherModel) {
  Manifest manifest = testing::GoldenManifest();
  manifest.schema.sparse.pop_back();
  EXPECT_EQ(ReadSamples(testing::GoldenFolder(), manifest).status().message(),
            "samples.safetensors: 0/lengths: expected I32 [2], got I32 [5]");
  manifest = testing::GoldenManifest();
  manifest.schema.outputs.pop_back();
  EXPECT_EQ(ReadSamples(testing::GoldenFolder(), manifest).status().message(),
            "samples.safetensors: 0/output/profile: unexpected tensor");
}

}  // namespace
}  // namespace embershard
