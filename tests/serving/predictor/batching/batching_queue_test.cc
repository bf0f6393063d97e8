#include "batching/batching_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "testing/turn.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

std::unique_ptr<Request> Waiting(uint32_t examples,
                                 Clock::time_point deadline = Clock::time_point::max()) {
  auto request = std::make_unique<Request>();
  request->num_examples = examples;
  request->deadline = deadline;
  return request;
}

// Batches that block until they are released, and the sizes of their requests.
class Gate {
 public:
  BatchingQueue::RunBatch run() {
    return [this](const Due& due, BatchingQueue* queue) {
      for (const auto& request : due.expired) expired_.push_back(request->num_examples);
      if (due.batch.empty()) return;
      std::vector<uint32_t> examples;
      for (const auto& request : due.batch) examples.push_back(request->num_examples);
      batches_.push_back(examples);
      if (batches_.size() == 1) {
        running_.count_down();
        open_.wait();
      }
      queue->EndRun(due.lease);
    };
  }
  BatchingQueue::CompleteEarly late() {
    return [this](EarlyCompletion early) {
      const std::lock_guard lock(mutex_);
      late_.push_back(std::move(early));
    };
  }

  void WaitUntilRunning() { running_.wait(); }
  void Open() { open_.count_down(); }

  // REQUIRES: the queue has stopped.
  const std::vector<std::vector<uint32_t>>& batches() const { return batches_; }
  const std::vector<uint32_t>& expired() const { return expired_; }

  // Requests that were answered early since the last call.
  std::vector<EarlyCompletion> TakeLate() {
    const std::lock_guard lock(mutex_);
    return std::exchange(late_, {});
  }
  size_t CountLate() {
    const std::lock_guard lock(mutex_);
    return late_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<EarlyCompletion> late_;  // Guarded by mutex_.
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
  BatchingQueue queue(Small(100, 100), gate.run(), gate.late());
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  gate.WaitUntilRunning();
  for (const uint32_t examples : {2U, 3U, 4U}) {
    EXPECT_EQ(Submit(&queue, Waiting(examples)), Admission::kAccepted);
  }
  EXPECT_EQ(queue.queued().work.examples, 9U);
  gate.Open();
  queue.Stop();
  EXPECT_EQ(gate.batches(), (Batches{{1}, {2, 3, 4}}));
  EXPECT_EQ(queue.queued().work.examples, 0U);
}

TEST(BatchingQueue, WhoRunsBatchesDoesNotHoldUpWhoReadsRequests) {
  const uint64_t usual = TurnOfThisThread();
  if (usual == 0) GTEST_SKIP() << "needs Linux 6.12 or newer, which knows turns of a thread";
  Gate gate;
  uint64_t turn = 0;
  BatchingQueue queue(
      Small(1, 1),
      [&turn](const Due& due, BatchingQueue* of) {
        turn = TurnOfThisThread();
        of->EndRun(due.lease);
      },
      gate.late());
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  queue.Stop();  // Returns after the request has run.
  EXPECT_GT(turn, usual);
}

TEST(BatchingQueue, RefusesWhenFullAndLeavesTheRequestWithTheCaller) {
  Gate gate;
  BatchingQueue queue(Small(4, 4), gate.run(), gate.late());
  EXPECT_EQ(Submit(&queue, Waiting(4)), Admission::kAccepted);
  gate.WaitUntilRunning();
  EXPECT_EQ(Submit(&queue, Waiting(4)), Admission::kAccepted);
  auto request = Waiting(1);
  EXPECT_EQ(queue.Submit(request), Admission::kQueueFull);
  EXPECT_NE(request, nullptr);
  gate.Open();
}

TEST(BatchingQueue, NeverRunsWhatExpiredWhileTheModelWasBusy) {
  Gate gate;
  const Clock::time_point start;
  std::atomic<Clock::time_point> now = start;
  BatchingQueue queue(Small(100, 100), gate.run(), gate.late(), [&now] { return now.load(); });
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
  // Either the next batch or the timer noticed it first.
  EXPECT_EQ(gate.expired().size() + gate.CountLate(), 1U);
}

TEST(BatchingQueue, StopRunsWhatWasAcceptedAndRefusesTheRest) {
  Gate gate;
  BatchingQueue queue(Small(1, 5), gate.run(), gate.late());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  gate.WaitUntilRunning();
  gate.Open();
  queue.Stop();
  EXPECT_EQ(gate.batches().size(), 5U);
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kStopped);
  queue.Stop();
}

// A request with an answer, whose deadline therefore counts while it runs.
std::unique_ptr<Request> Answerable(uint32_t examples, CancellationHandle* cancellation,
                                    Clock::time_point deadline = Clock::time_point::max()) {
  auto request = Waiting(examples, deadline);
  request->answer = [](Status, Response) {};
  request->cancellation = cancellation;
  return request;
}

// Stands still until it is let go.
class HeldClock {
 public:
  BatchingQueue::Now now() {
    return [this] { return held_ ? start_ : Clock::now(); };
  }
  void Go() { held_ = false; }

 private:
  const Clock::time_point start_ = Clock::now();
  std::atomic<bool> held_ = true;
};

TEST(BatchingQueue, AnswersQueuedAndRunningRequestsAtTheirDeadlines) {
  Gate gate;
  HeldClock clock;
  BatchingQueue queue(Small(100, 100), gate.run(), gate.late(), clock.now());
  const Clock::time_point first = Clock::now() + std::chrono::milliseconds(20);
  const Clock::time_point second = first + std::chrono::milliseconds(10);
  EXPECT_EQ(Submit(&queue, Answerable(1, nullptr, first)), Admission::kAccepted);
  gate.WaitUntilRunning();
  EXPECT_EQ(Submit(&queue, Answerable(2, nullptr, second)), Admission::kAccepted);
  clock.Go();
  EXPECT_EQ(Submit(&queue, Waiting(3)), Admission::kAccepted);
  EXPECT_TRUE(WaitFor([&gate] { return gate.CountLate() == 2; }));  // While the model is busy.
  EXPECT_GE(Clock::now(), second);
  const std::vector<EarlyCompletion> early = gate.TakeLate();
  EXPECT_TRUE(early[0].runs);
  EXPECT_EQ(early[0].request, nullptr);
  EXPECT_FALSE(early[1].runs);
  EXPECT_EQ(early[1].request->num_examples, 2U);
  EXPECT_EQ(early[1].why, StatusReason::kUnstated);
  EXPECT_EQ(queue.queued().work.examples, 3U);
  gate.Open();
  queue.Stop();
  EXPECT_EQ(gate.batches(), (Batches{{1}, {3}}));
  EXPECT_EQ(gate.CountLate(), 0U);
}

TEST(BatchingQueue, ACancelledRequestLeavesItsRoomAtOnce) {
  Gate gate;
  BatchingQueue queue(Small(4, 4), gate.run(), gate.late());
  CancellationHandle running;
  CancellationHandle waiting;
  EXPECT_EQ(Submit(&queue, Answerable(1, &running)), Admission::kAccepted);
  gate.WaitUntilRunning();
  EXPECT_EQ(Submit(&queue, Answerable(4, &waiting)), Admission::kAccepted);
  EXPECT_EQ(Submit(&queue, Waiting(3)), Admission::kQueueFull);
  queue.Cancel(&waiting, StatusReason::kAbandoned);
  queue.Cancel(&waiting, StatusReason::kAbandoned);
  queue.Cancel(&running, StatusReason::kAbandoned);
  const std::vector<EarlyCompletion> early = gate.TakeLate();
  ASSERT_EQ(early.size(), 2U);
  EXPECT_EQ(early[0].request->num_examples, 4U);
  EXPECT_EQ(early[0].why, StatusReason::kAbandoned);
  EXPECT_TRUE(early[1].runs);
  EXPECT_EQ(Submit(&queue, Waiting(3)), Admission::kAccepted);
  gate.Open();
  queue.Stop();
  queue.Cancel(&running, StatusReason::kAbandoned);
  EXPECT_EQ(gate.batches(), (Batches{{1}, {3}}));
  EXPECT_EQ(gate.CountLate(), 0U);
}

TEST(BatchingQueue, WhatNoBatchWasMadeOfCannotBeTakenBack) {
  Gate gate;
  BatchingQueue queue(Small(4, 8), gate.run(), gate.late());
  CancellationHandle cancellation;
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  gate.WaitUntilRunning();
  auto left = Answerable(2, &cancellation);
  left->abandoned = [] { return true; };
  EXPECT_EQ(Submit(&queue, std::move(left)), Admission::kAccepted);
  EXPECT_NE(cancellation.request, nullptr);
  gate.Open();
  queue.Stop();
  EXPECT_EQ(cancellation.request, nullptr);
}

// Records the thread and the number of requests of each batch.
class Runs {
 public:
  BatchingQueue::RunBatch run() {
    return [this](const Due& due, BatchingQueue* queue) {
      Note(due.batch.size());
      during_(due);
      queue->EndRun(due.lease);
    };
  }
  static void Answer(const EarlyCompletion& early) { early.answer({}, {}); }

  // Sets a function that is called during each batch from now on.
  void SetDuring(std::function<void(const Due&)> during) { during_ = std::move(during); }

  bool ByMe() { return By(std::this_thread::get_id()); }
  bool By(std::thread::id thread) {
    const std::lock_guard lock(mutex_);
    return !runs_.empty() && runs_.back().first == thread;
  }
  size_t last_size() {
    const std::lock_guard lock(mutex_);
    return runs_.empty() ? 0 : runs_.back().second;
  }

 private:
  void Note(size_t size) {
    const std::lock_guard lock(mutex_);
    runs_.emplace_back(std::this_thread::get_id(), size);
  }

  std::mutex mutex_;
  std::vector<std::pair<std::thread::id, size_t>> runs_;  // Guarded by mutex_.
  std::function<void(const Due&)> during_ = [](const Due&) {};
};

// Submits requests until the calling thread runs one itself. By then the cost of such a batch is
// known and the queue's thread is idle.
bool SubmitUntilMine(BatchingQueue* queue, Runs* runs) {
  return WaitFor([queue, runs] {
    if (queue->queued().requests > 0) return false;  // The queue's thread has not taken it yet.
    EXPECT_EQ(Submit(queue, Waiting(1)), Admission::kAccepted);
    return runs->ByMe();
  });
}

TEST(BatchingQueue, RunsASmallRequestInlineIfTheModelIsIdle) {
  Runs runs;
  BatchingOptions options = Small(100, 100);
  options.max_inline = std::chrono::hours(1);  // Enough for any machine.
  BatchingQueue queue(options, runs.run(), Runs::Answer);
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  EXPECT_TRUE(WaitFor([&runs] { return runs.last_size() == 1; }));
  EXPECT_FALSE(runs.ByMe());  // Its cost was not known yet.
  EXPECT_TRUE(SubmitUntilMine(&queue, &runs));
}

// Submits that many requests during the first batch that the calling thread runs.
std::function<void(const Due&)> SubmitOnce(BatchingQueue* queue, int requests) {
  return [queue, requests, me = std::this_thread::get_id(), done = false](const Due&) mutable {
    if (done || std::this_thread::get_id() != me) return;
    done = true;
    for (int i = 0; i < requests; ++i) {
      EXPECT_EQ(Submit(queue, Waiting(1)), Admission::kAccepted);  // Does not block.
    }
  };
}

TEST(BatchingQueue, WhatGathersMeanwhileIsRunByTheSameThreadWhileThereIsTime) {
  Runs runs;
  BatchingOptions options = Small(100, 100);
  options.max_inline = std::chrono::hours(1);
  BatchingQueue queue(options, runs.run(), Runs::Answer);
  ASSERT_TRUE(SubmitUntilMine(&queue, &runs));
  runs.SetDuring(SubmitOnce(&queue, 3));
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  EXPECT_EQ(runs.last_size(), 3U);
  EXPECT_TRUE(runs.ByMe());
}

TEST(BatchingQueue, AWorkerRunsWhatArrivesDuringALongInlineRun) {
  Runs runs;
  BatchingOptions options = Small(100, 100);
  options.max_inline = std::chrono::seconds(1);
  std::atomic<int64_t> now_us = 0;
  BatchingQueue queue(options, runs.run(), Runs::Answer, [&now_us] {
    // Each look at the clock is 2 us after the last.
    return Clock::time_point(std::chrono::microseconds(now_us += 2));
  });
  ASSERT_TRUE(SubmitUntilMine(&queue, &runs));
  runs.SetDuring([&now_us, submit = SubmitOnce(&queue, 3)](const Due& due) {
    submit(due);
    now_us += 1'000'000;
  });
  EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
  EXPECT_TRUE(WaitFor([&runs] { return runs.last_size() == 3; }));
  EXPECT_FALSE(runs.ByMe());
}

TEST(BatchingQueue, NobodyRunsHisOwnWhereThatIsTurnedOffOrTakesLong) {
  for (const int max_inline_us : {0, 1}) {
    Runs runs;
    BatchingOptions options = Small(100, 100);
    options.max_inline = std::chrono::microseconds(max_inline_us);
    std::atomic<int64_t> now_us = 0;
    BatchingQueue queue(options, runs.run(), Runs::Answer, [&now_us] {
      // Each look at the clock is 2 us after the last.
      return Clock::time_point(std::chrono::microseconds(now_us += 2));
    });
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(Submit(&queue, Waiting(1)), Admission::kAccepted);
      EXPECT_TRUE(WaitFor([&queue] { return queue.queued().requests == 0; }));
      EXPECT_FALSE(runs.ByMe());
    }
  }
}

}  // namespace
}  // namespace embershard
