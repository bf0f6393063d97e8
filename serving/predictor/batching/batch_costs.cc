#include "batching/batch_costs.h"

#include <algorithm>
#include <bit>
#include <span>

namespace embershard {
namespace {

constexpr float kGrows = 9.0F / 8;
constexpr float kShrinks = 71.0F / 72;  // 9 steps down are one step up, and about as long.

// 0 for none, else 1 + the power of two.
size_t BucketOf(uint64_t count, size_t buckets) {
  return std::min(static_cast<size_t>(std::bit_width(count)), buckets - 1);
}

void LearnOne(float took, float* estimate) {
  if (*estimate == 0) {
    *estimate = took;
  } else {
    *estimate *= took > *estimate ? kGrows : kShrinks;
  }
}

// Of this bucket or, where nothing is known, of the next smaller.
float AtMost(std::span<const float> estimates, size_t bucket) {
  while (bucket > 0 && estimates[bucket] == 0) --bucket;
  return estimates[bucket];
}

}  // namespace

void BatchCosts::Learn(const BatchSize& size, std::chrono::nanoseconds took) {
  const float nanoseconds = std::max(static_cast<float>(took.count()), 1.0F);
  const size_t examples = BucketOf(size.examples, kExamples);
  const size_t ids = BucketOf(size.ids, kIds);
  LearnOne(nanoseconds, &of_size_[BucketOf(size.requests, kRequests)][examples][ids]);
  LearnOne(nanoseconds, &of_examples_[examples]);
  LearnOne(nanoseconds, &of_ids_[ids]);
}

std::chrono::nanoseconds BatchCosts::Predict(const BatchSize& size) const {
  const size_t examples = BucketOf(size.examples, kExamples);
  const size_t ids = BucketOf(size.ids, kIds);
  float estimate = of_size_[BucketOf(size.requests, kRequests)][examples][ids];
  if (estimate == 0) estimate = std::max(AtMost(of_examples_, examples), AtMost(of_ids_, ids));
  return std::chrono::nanoseconds(static_cast<int64_t>(estimate));
}

}  // namespace embershard
