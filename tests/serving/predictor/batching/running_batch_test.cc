#include "batching/running_batch.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "batching/start.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

std::vector<std::unique_ptr<Request>> BatchDue(const std::vector<int>& deadlines) {
  std::vector<std::unique_ptr<Request>> batch;
  for (const int deadline : deadlines) {
    batch.push_back(std::make_unique<Request>());
    batch.back()->deadline = kStart + milliseconds(deadline);
    batch.back()->answer = [](Status, Response) {};
  }
  return batch;
}

TEST(RunningBatch, GivesEachThatExpiresOnceInTheOrderOfDeadlines) {
  const auto batch = BatchDue({1, 2, 2, 5});
  RunningBatch running;
  EXPECT_EQ(running.next_deadline(), Clock::time_point::max());
  running.Begin(batch);
  EXPECT_EQ(running.next_deadline(), kStart + milliseconds(1));
  EXPECT_EQ(running.FirstExpired(kStart), nullptr);
  for (const size_t expected : {0, 1, 2}) {
    Request* const expired = running.FirstExpired(kStart + milliseconds(4));
    ASSERT_EQ(expired, batch[expected].get());
    const EarlyCompletion early(expired, StatusReason::kUnstated);
    EXPECT_TRUE(early.runs);
    EXPECT_TRUE(early.answer);
    EXPECT_FALSE(expired->answer);
  }
  EXPECT_EQ(running.FirstExpired(kStart + milliseconds(4)), nullptr);
  EXPECT_EQ(running.next_deadline(), kStart + milliseconds(5));
}

TEST(RunningBatch, PassesOverOneThatWasTakenBack) {
  const auto batch = BatchDue({1, 2});
  RunningBatch running;
  running.Begin(batch);
  auto cancellation = std::make_unique<CancellationHandle>();
  batch[0]->cancellation = cancellation.get();
  const EarlyCompletion cancelled(batch[0].get(), StatusReason::kAbandoned);
  cancellation.reset();  // The caller has its answer and destroys the handle.
  EXPECT_EQ(running.FirstExpired(kStart + milliseconds(3)), batch[1].get());
  running.End();
}

TEST(RunningBatch, KnowsNothingOfABatchThatHasEnded) {
  const auto batch = BatchDue({1});
  CancellationHandle cancellation{batch[0].get()};
  batch[0]->cancellation = &cancellation;
  RunningBatch running;
  running.Begin(batch);
  running.End();
  EXPECT_EQ(cancellation.request, nullptr);
  EXPECT_EQ(running.FirstExpired(kStart + milliseconds(3)), nullptr);
  running.Begin(batch);
  EXPECT_EQ(running.FirstExpired(kStart + milliseconds(3)), batch[0].get());
}

}  // namespace
}  // namespace embershard
