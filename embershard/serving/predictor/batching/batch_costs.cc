#include "batching/batch_costs.h"

#include <algorithm>
#include <bit>

namespace embershard {
namespace {

constexpr float kGrows = 9.0F / 8;
constexpr float kShrinks = 71.0F / 72;  // 9 steps down undo one step up.
constexpr float kMedianStep = 33.0F / 32;

// Bucket 0 holds 0; bucket k holds 2^(k-1) to 2^k - 1.
size_t BucketOf(uint64_t count, size_t buckets) {
  return std::min(static_cast<size_t>(std::bit_width(count)), buckets - 1);
}

}  // namespace

void BatchCosts::Estimate::Learn(float took, float grows, float shrinks, Clock::time_point now) {
  if (nanoseconds == 0 || now - seen > kMemory) {
    nanoseconds = took;
  } else {
    nanoseconds *= took > nanoseconds ? grows : shrinks;
  }
  seen = now;
}

void BatchCosts::Learn(const BatchSize& size, std::chrono::nanoseconds took,
                       Clock::time_point now) {
  const float nanoseconds = std::max(static_cast<float>(took.count()), 1.0F);
  const size_t examples = BucketOf(size.examples, kExamples);
  const size_t ids = BucketOf(size.ids, kIds);
  const size_t requests = BucketOf(size.requests, kRequests);
  for (Estimate* estimate :
       {&of_size_[requests][examples][ids], &of_examples_[examples], &of_ids_[ids]}) {
    estimate->Learn(nanoseconds, kGrows, kShrinks, now);
  }
  const float per_example = nanoseconds / static_cast<float>(std::max<uint64_t>(size.examples, 1));
  per_example_[examples].Learn(per_example, kMedianStep, 1 / kMedianStep, now);
}

float BatchCosts::PerExample(uint64_t examples, Clock::time_point since) const {
  return per_example_[BucketOf(examples, kExamples)].Since(since);
}

float BatchCosts::PerExample(uint64_t examples) const {
  return AtMost(per_example_, BucketOf(examples, kExamples), Clock::time_point::min());
}

std::chrono::nanoseconds BatchCosts::Predict(const BatchSize& size, Clock::time_point since) const {
  const size_t examples = BucketOf(size.examples, kExamples);
  const size_t ids = BucketOf(size.ids, kIds);
  float estimate = of_size_[BucketOf(size.requests, kRequests)][examples][ids].Since(since);
  if (estimate == 0) {
    estimate = std::max(AtMost(of_examples_, examples, since), AtMost(of_ids_, ids, since));
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(estimate));
}

float BatchCosts::AtMost(std::span<const Estimate> estimates, size_t bucket,
                         Clock::time_point since) {
  while (bucket > 0 && estimates[bucket].Since(since) == 0) --bucket;
  return estimates[bucket].Since(since);
}

}  // namespace embershard
