#include "batching/batching_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>
#include <vector>

namespace embershard {
namespace {

std::unique_ptr<Request> Waiting(uint32_t examples,
                                 Clock::time_point deadline = Clock::time_point::max()) {
  auto request = std::make_unique<Request>();
  request->num_examples = examples;
  request->deadline = deadline;
  return request;
}

// Runs that stand still until they are let go, and what they were given.
class Gate {
 public:
  BatchingQueue::RunBatch run() {
    return [this](const Due& due) {
      for (const auto& request : due.expired) expired_.push_back(request->num_examples);
      if (due.batch.empty()) return;
      std::vector<uint32_t> examples;
      for (const auto& request : due.batch) examples.push_back(request->num_examples);
      batches_.push_back(examples);
      if (batches_.size() == 1) {
        running_.count_down();
        open_.wait();
      }
    };
  }

  void WaitUntilRunning() { running_.wait(); }
  void Open() { open_.count_down(); }

  // REQUIRES: the queue has stopped.
  const std::vector<std::vector<uint32_t>>& batches() const { return batches_; }
  const std::vector<uint32_t>& expired() const { return expired_; }

 private:
  std::latch running_{1};
  std::latch open_{1};
  std::vector<std::vector<uint32_t>> batches_;
  std::vector<uint32_t> expired_;
};

// A batch of up to `examples`, and `queued` of them waiting.
BatchingOptions Small(size_t examples, size_t queued) {
  return {.max_batch_examples = examples,
          .max_batch_ids = 1,
          .merge_examples = examples,
          .max_queued_examples = queued,
          .max_queued_ids = 1};
}

Admission Submit(BatchingQueue* queue, std::unique_ptr<Request> request) {
  return queue->Submit(request);
}

using Batches = std::vector<std::vector<uint32_t>>;

TEST(BatchingQueue, AnIdleModelRunsAtOnceAndABusyOneLetsRequestsGather) {
  Gate gate;
  BatchingQueue queue(Small(100, 100), gate.run());
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  gate.WaitUntilRunning();
  for (const uint32_t examples : {2U, 3U, 4U}) {
    EXPECT_EQ(Submit(&queue, Waiting(examples)), Admission::kAccepted);
  }
  EXPECT_EQ(queue.queued().examples, 9U);
  gate.Open();
  queue.Stop();
  EXPECT_EQ(gate.batches(), (Batches{{1}, {2, 3, 4}}));
  EXPECT_EQ(queue.queued().examples, 0U);
}

TEST(BatchingQueue, RefusesWhenFullAndLeavesTheRequestWithTheCaller) {
  Gate gate;
  BatchingQueue queue(Small(4, 4), gate.run());
  EXPECT_EQ(Submit(&queue, Waiting(4)), Admission::kAccepted);
  gate.WaitUntilRunning();
  EXPECT_EQ(Submit(&queue, Waiting(4)), Admission::kAccepted);
  auto request = Waiting(1);
  EXPECT_EQ(queue.Submit(request), Admission::kQueueFull);
  EXPECT_NE(request, nullptr);
  gate.Open();
}

TEST(BatchingQueue, HandsBackWhatExpiredWhileTheModelWasBusy) {
  Gate gate;
  const Clock::time_point start;
  std::atomic<Clock::time_point> now = start;
  BatchingQueue queue(Small(100, 100), gate.run(), [&now] { return now.load(); });
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  gate.WaitUntilRunning();
  const Clock::time_point deadline = start + std::chrono::hours(1);
  EXPECT_EQ(Submit(&queue, Waiting(2, deadline)), Admission::kAccepted);
  EXPECT_EQ(Submit(&queue, Waiting(3)), Admission::kAccepted);
  now = deadline;
  EXPECT_EQ(Submit(&queue, Waiting(4, deadline)), Admission::kExpired);
  gate.Open();
  queue.Stop();
  EXPECT_EQ(gate.batches(), (Batches{{1}, {3}}));
  EXPECT_EQ(gate.expired(), std::vector<uint32_t>{2});
}

TEST(BatchingQueue, StopRunsWhatWasAcceptedAndRefusesTheRest) {
  Gate gate;
  BatchingQueue queue(Small(1, 5), gate.run());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  gate.WaitUntilRunning();
  gate.Open();
  queue.Stop();
  EXPECT_EQ(gate.batches().size(), 5U);
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kStopped);
  queue.Stop();
}

TEST(BatchingQueue, EveryAcceptedRequestComesOutOnceWhateverTheThreadsDo) {
  constexpr int kThreads = 8;
  constexpr int kEach = 2000;
  std::atomic<int> came_out = 0;
  std::atomic<int> accepted = 0;
  std::vector<std::atomic<int>> times(kThreads * kEach);
  {
    BatchingQueue queue(Small(16, 64), [&](const Due& due) {
      for (const Batch* part : {&due.batch, &due.expired}) {
        for (const auto& request : *part) {
          ++times[request->outputs_wanted[0]];
          ++came_out;
        }
      }
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          // Every third has next to no time; the last eighth meets a stopped queue.
          auto request = Waiting(1 + i % 3, i % 3 == 0 ? Clock::now() + std::chrono::microseconds(5)
                                                       : Clock::time_point::max());
          request->outputs_wanted = {static_cast<size_t>(t * kEach + i)};
          if (queue.Submit(request) == Admission::kAccepted) ++accepted;
          if (t == 0 && i == kEach * 7 / 8) queue.Stop();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_GT(accepted, 0);
  EXPECT_EQ(came_out, accepted);
  for (const auto& count : times) EXPECT_LE(count, 1);
}

}  // namespace
}  // namespace embershard
