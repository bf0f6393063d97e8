#include "batching/forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "batching/start.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

BatchingOptions SmallBatches() {
  return {.max_batch_examples = 10,
          .max_batch_ids = 100,
          .merge_examples = 10,
          .max_queued_examples = 100,
          .max_queued_ids = 1000};
}

// Teaches that batches of `size` take that long, as seen just before kStart.
void Teach(Forecast* forecast, const BatchSize& size, milliseconds took) {
  forecast->RunBegins(0, size, kStart - took);
  forecast->RunEnds(0, kStart);
}

TEST(Forecast, KnowsNothingAtFirst) {
  const Forecast forecast(SmallBatches());
  EXPECT_FALSE(forecast.is_full());
  EXPECT_EQ(forecast.FirstEnd(kStart), Clock::time_point::max());
  EXPECT_EQ(forecast.OfBatch({1, 1, 1}).count(), 0);
  EXPECT_EQ(forecast.EndOf({9, 90, 900}, kStart), kStart);
}

TEST(Forecast, CountsTheBatchesThatTheWorkFills) {
  Forecast forecast(SmallBatches());
  Teach(&forecast, {4, 8, 64}, milliseconds(7));
  EXPECT_EQ(forecast.EndOf({4, 8, 64}, kStart), kStart + milliseconds(7));
  // 21 requests of 1 example are 3 batches of 7 requests, 7 examples and 67 ids. Their cost is the
  // one known for 64 ids and more.
  EXPECT_EQ(forecast.EndOf({21, 21, 200}, kStart), kStart + milliseconds(3 * 7));
  // 21 requests with 401 ids need 5 batches of at most 100 ids.
  EXPECT_EQ(forecast.EndOf({21, 21, 401}, kStart), kStart + milliseconds(5 * 7));
}

TEST(Forecast, HalvesABatchUntilHalvesTakeOverAnEighthLonger) {
  Forecast forecast(SmallBatches());
  Teach(&forecast, {1, 256, 0}, milliseconds(112));
  Teach(&forecast, {1, 128, 0}, milliseconds(60));
  Teach(&forecast, {1, 64, 0}, milliseconds(33));  // 66 is a tenth longer than 60.
  Teach(&forecast, {1, 32, 0}, milliseconds(20));  // 40 is a fifth longer than 33.
  EXPECT_EQ(forecast.PartsWithin(milliseconds(112), {1, 256, 0}, 256, kStart), 1);
  EXPECT_EQ(forecast.PartsWithin(milliseconds(61), {1, 256, 0}, 256, kStart), 2);
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), {1, 256, 0}, 256, kStart), 4);
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), {1, 64, 0}, 256, kStart), 1);
}

TEST(Forecast, TriesHalvesOfASizeThatHasNotRunForASecond) {
  Forecast forecast(SmallBatches());
  const BatchSize whole = {1, 256, 0};
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), whole, 256, kStart), 1);
  Teach(&forecast, whole, milliseconds(112));
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), whole, 256, kStart), 2);
  Teach(&forecast, {1, 128, 0}, milliseconds(60));
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), whole, 256, kStart), 4);
  Teach(&forecast, {1, 64, 0}, milliseconds(50));
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), whole, 256, kStart), 2);
  const Clock::time_point later = kStart + milliseconds(1001);
  forecast.RunBegins(0, {1, 128, 0}, later - milliseconds(60));
  forecast.RunEnds(0, later);
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), whole, 256, later), 4);
}

TEST(Forecast, DividesWorkLargerThanABatchAndNoOneExample) {
  Forecast forecast(SmallBatches());
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), {1, 700, 0}, 256, kStart), 3);
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), {1, 0, 0}, 256, kStart), 1);
  Teach(&forecast, {1, 3, 0}, milliseconds(30));
  Teach(&forecast, {1, 1, 0}, milliseconds(10));
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), {1, 3, 0}, 256, kStart), 2);
  EXPECT_EQ(forecast.PartsWithin(milliseconds(5), {1, 1, 0}, 256, kStart), 1);
}

TEST(Forecast, CountsOnlyWholeRequestsIntoABatch) {
  Forecast forecast(SmallBatches());
  Teach(&forecast, {2, 8, 0}, milliseconds(7));
  // A batch of 10 holds 2 requests of 4 examples each: 5 of them are 3 batches, not 2.
  EXPECT_EQ(forecast.EndOf({5, 20, 0}, kStart), kStart + milliseconds(3 * 7));
  // Requests larger than a merged batch run alone.
  EXPECT_EQ(forecast.EndOf({3, 45, 0}, kStart), kStart + milliseconds(3 * 7));
}

TEST(Forecast, AddsWhatIsLeftOfTheBatchThatRuns) {
  Forecast forecast(SmallBatches());
  Teach(&forecast, {1, 8, 64}, milliseconds(7));
  forecast.RunBegins(0, {1, 8, 64}, kStart);
  EXPECT_TRUE(forecast.is_full());
  EXPECT_EQ(forecast.EndOf({1, 8, 64}, kStart + milliseconds(2)), kStart + milliseconds(7 + 7));
  // A batch that takes longer than its forecast may end at any moment.
  EXPECT_EQ(forecast.EndOf({1, 8, 64}, kStart + milliseconds(9)), kStart + milliseconds(9 + 7));
  forecast.RunEnds(0, kStart + milliseconds(9));
  EXPECT_FALSE(forecast.is_full());
}

TEST(Forecast, GivesEachBatchToTheSlotThatIsFreeFirst) {
  BatchingOptions options = SmallBatches();
  options.slots = 2;
  Forecast forecast(options);
  Teach(&forecast, {1, 10, 64}, milliseconds(7));
  forecast.RunBegins(0, {1, 10, 64}, kStart);
  EXPECT_FALSE(forecast.is_full());
  // Runs in slot 1 from now on, and ends at 10. A second one there would end at 17.
  const Clock::time_point now = kStart + milliseconds(3);
  EXPECT_EQ(forecast.EndOf({1, 10, 64}, now), kStart + milliseconds(10));
  // The second one runs in slot 0, which is free at 7.
  EXPECT_EQ(forecast.EndOf({2, 20, 128}, now), kStart + milliseconds(14));
  EXPECT_EQ(forecast.EndOf({3, 30, 192}, now), kStart + milliseconds(17));
  EXPECT_EQ(forecast.FirstEnd(now), kStart + milliseconds(7));
  EXPECT_EQ(forecast.FirstEnd(kStart + milliseconds(8)), kStart + milliseconds(7));
  forecast.RunBegins(1, {1, 10, 64}, now);
  EXPECT_TRUE(forecast.is_full());
  EXPECT_EQ(forecast.EndOf({1, 10, 64}, now), kStart + milliseconds(14));
  forecast.RunEnds(0, kStart + milliseconds(7));
  EXPECT_FALSE(forecast.is_full());
}

TEST(Forecast, ManyBatchesEndWhenTheyDoCountedOneByOne) {
  BatchingOptions options = SmallBatches();
  options.slots = 3;
  for (const int64_t running_ms : {0, 1, 7, 50}) {
    for (const uint64_t count : {1U, 2U, 3U, 4U, 10U, 100U, 1001U}) {
      Forecast forecast(options);
      Teach(&forecast, {1, 8, 0}, milliseconds(40));
      forecast.RunBegins(0, {1, 8, 0}, kStart);
      forecast.RunBegins(1, {1, 8, 0}, kStart - milliseconds(27));
      if (running_ms > 0) {  // The cost of batches of 4 requests is known.
        forecast.RunBegins(2, {4, 10, 0}, kStart - milliseconds(running_ms));
        forecast.RunEnds(2, kStart);
      }
      std::array<int64_t, 3> free = {40, 13, 0};
      const int64_t takes = running_ms > 0 ? running_ms : 40;
      int64_t expected = 0;
      for (uint64_t i = 0; i < count; ++i) {
        expected = *std::ranges::min_element(free) += takes;
      }
      const BatchSize work =
          running_ms > 0 ? BatchSize{4 * count, 10 * count, 0} : BatchSize{count, 8 * count, 0};
      EXPECT_EQ(forecast.EndOf(work, kStart), kStart + milliseconds(expected))
          << count << " of " << running_ms;
    }
  }
}

TEST(Forecast, RecentMeansWithinASecondForTheQueueAndEverForOneBatch) {
  Forecast forecast(SmallBatches());
  Teach(&forecast, {1, 8, 64}, milliseconds(7));
  const Clock::time_point later = kStart + milliseconds(1001);
  EXPECT_EQ(forecast.EndOf({1, 8, 64}, later), later);
  EXPECT_EQ(forecast.OfBatch({1, 8, 64}), milliseconds(7));
}

}  // namespace
}  // namespace embershard
