// Batches that run at once.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "batching/batching_queue.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

BatchingOptions Small(size_t examples, size_t queued, size_t slots) {
  return {.max_batch_examples = examples,
          .max_batch_ids = 1,
          .merge_examples = examples,
          .max_queued_examples = queued,
          .max_queued_ids = 1,
          .slots = slots};
}

std::unique_ptr<Request> Waiting(uint32_t examples) {
  auto request = std::make_unique<Request>();
  request->num_examples = examples;
  request->may_run_inline = false;
  return request;
}

// A clock that moves only in Pass().
class Standing {
 public:
  BatchingQueue::Now now() {
    return [this] { return Clock::time_point(std::chrono::microseconds(microseconds_)); };
  }
  void Pass(int64_t microseconds) { microseconds_ += microseconds; }

 private:
  std::atomic<int64_t> microseconds_ = 1'000'000'000;
};

// Batches that take three milliseconds, and block in their slots until they are released.
class Held {
 public:
  BatchingQueue::RunBatch run() {
    return [this](const Due& due, BatchingQueue* queue) {
      {
        const std::lock_guard lock(mutex_);
        std::vector<uint32_t>& batch =
            runs_.emplace_back(due.lease.number(), std::vector<uint32_t>()).second;
        for (const auto& request : due.batch) batch.push_back(request->num_examples);
        ++begun_;
      }
      EXPECT_TRUE(WaitFor([&] { return open_[due.lease.number()].load(); }));
      clock_.Pass(3000);
      queue->EndRun(due.lease);
    };
  }

  BatchingQueue::Now now() { return clock_.now(); }

  void WaitUntilBegun(int runs) {
    EXPECT_TRUE(WaitFor([&] { return begun_ >= runs; }));
  }
  void Open(size_t slot) { open_[slot] = true; }
  void Pass(int64_t microseconds) { clock_.Pass(microseconds); }

  // The slot of each batch and the examples of each of its requests, in the order of beginning.
  using Runs = std::vector<std::pair<size_t, std::vector<uint32_t>>>;
  Runs runs() {
    const std::lock_guard lock(mutex_);
    return runs_;
  }

 private:
  Standing clock_;
  std::mutex mutex_;
  Runs runs_;  // Guarded by mutex_.
  std::atomic<int> begun_ = 0;
  std::array<std::atomic<bool>, 8> open_{};
};

void CompleteEarly(const EarlyCompletion& /*late*/) { ADD_FAILURE() << "nothing here is late"; }

void Submit(BatchingQueue* queue, uint32_t examples) {
  std::unique_ptr<Request> request = Waiting(examples);
  EXPECT_EQ(queue->Submit(request), Admission::kAccepted);
}

TEST(Slots, AFreeOneRunsAtOnceAndWhileAllAreBusyRequestsGather) {
  Held held;
  BatchingQueue queue(Small(100, 100, 2), held.run(), CompleteEarly, held.now());
  Submit(&queue, 1);
  held.WaitUntilBegun(1);
  Submit(&queue, 2);
  held.WaitUntilBegun(2);
  Submit(&queue, 3);
  Submit(&queue, 4);
  EXPECT_EQ(queue.queued().requests, 2U);
  held.Open(1);
  held.WaitUntilBegun(3);
  held.Open(0);
  queue.Stop();
  EXPECT_EQ(held.runs(), (Held::Runs{{0, {1}}, {1, {2}}, {1, {3, 4}}}));
}

// Batches that take as long as the test says, and block while `holds` is true.
class Taught {
 public:
  explicit Taught(size_t slots = 4)
      : queue(
            Small(100, 300, slots),
            [this](const Due& due, BatchingQueue* running) {
              ++begun;
              largest = std::max(largest.load(), due.batch.size());
              clock.Pass(takes);
              EXPECT_TRUE(WaitFor([this] { return !holds; }));
              running->EndRun(due.lease);
              ++ended;
            },
            CompleteEarly, clock.now()) {}

  // Waits until that many batches have begun, or ended.
  void WaitUntilBegun(int batches) {
    EXPECT_TRUE(WaitFor([&] { return begun >= batches; }));
  }
  void WaitUntilEnded(int batches) {
    EXPECT_TRUE(WaitFor([&] { return ended >= batches; }));
  }
  // Teaches that one request takes that long.
  void Teach(int64_t microseconds) {
    takes = microseconds;
    for (int i = 0; i < 2; ++i) {  // The cost of the first is learned before the second begins.
      const int before = ended;
      Submit(&queue, 1);
      WaitUntilEnded(before + 1);
    }
    takes = 0;
  }
  // Teaches that `requests` merged requests take that long. REQUIRES: one is known to take little.
  void TeachMany(int requests, int64_t microseconds) {
    const int before = begun;
    holds = true;
    Submit(&queue, 1);
    WaitUntilBegun(before + 1);
    for (int i = 0; i < requests; ++i) Submit(&queue, 1);
    takes = microseconds;
    holds = false;
    WaitUntilEnded(before + 2);
    takes = 0;
    EXPECT_EQ(begun, before + 2);
  }

  Standing clock;
  std::atomic<bool> holds = false;
  std::atomic<int> begun = 0;
  std::atomic<int> ended = 0;
  std::atomic<int64_t> takes = 0;
  std::atomic<size_t> largest = 0;  // Requests of a batch.
  BatchingQueue queue;
};

TEST(Slots, ALittleWaitsForOneThatIsSoonFree) {
  Taught taught;
  taught.Teach(300);
  taught.holds = true;
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(3);
  Submit(&taught.queue, 1);
  Submit(&taught.queue, 1);
  EXPECT_EQ(taught.queue.queued().requests, 2U);
  taught.holds = false;
  taught.queue.Stop();
  EXPECT_EQ(taught.begun, 4);
  EXPECT_EQ(taught.largest, 2U);
}

TEST(Slots, NothingWaitsForOneWhoseBatchIsLate) {
  Taught taught;
  taught.Teach(100);
  taught.holds = true;
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(3);
  Submit(&taught.queue, 1);
  EXPECT_EQ(taught.begun, 3);
  taught.clock.Pass(2200);  // Nothing more is submitted.
  taught.WaitUntilBegun(4);
  taught.holds = false;
}

TEST(Slots, ARequestThatTakesLongRunsInAFurtherOneAtOnce) {
  Taught taught;
  taught.Teach(1100);
  taught.holds = true;
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(3);
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(4);
  taught.holds = false;
}

TEST(Slots, ManyLittleOnesRunInAFurtherOneOnceTheyAreMuchWork) {
  Taught taught;
  taught.Teach(100);
  taught.TeachMany(15, 1800);
  taught.TeachMany(16, 2200);
  taught.holds = true;
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(7);
  for (size_t i = 1; i <= 15; ++i) {
    Submit(&taught.queue, 1);
    EXPECT_EQ(taught.queue.queued().requests, i);
  }
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(8);
  EXPECT_EQ(taught.queue.queued().requests, 0U);
  taught.holds = false;
  taught.queue.Stop();
  EXPECT_EQ(taught.begun, 8);  // All sixteen were one batch.
}

TEST(Slots, NothingMissesItsDeadlineBesideAFreeOne) {
  Taught taught(/*slots=*/2);
  taught.Teach(400);
  taught.holds = true;
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(3);
  std::unique_ptr<Request> request = Waiting(1);
  request->deadline = taught.clock.now()() + std::chrono::milliseconds(3);
  EXPECT_EQ(taught.queue.Submit(request), Admission::kAccepted);
  taught.clock.Pass(2300);
  Submit(&taught.queue, 1);
  EXPECT_EQ(taught.queue.queued().requests, 2U);
  taught.clock.Pass(250);  // Half a millisecond is left, which the request may take.
  taught.WaitUntilBegun(4);
  taught.holds = false;
}

TEST(Slots, AFullBatchRunsInTheLastHalfAtOnce) {
  Taught taught(/*slots=*/2);
  taught.Teach(100);
  taught.holds = true;
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(3);
  for (size_t i = 1; i < 100; ++i) {
    Submit(&taught.queue, 1);
    EXPECT_EQ(taught.queue.queued().requests, i);
  }
  Submit(&taught.queue, 1);
  taught.WaitUntilBegun(4);
  taught.holds = false;
  taught.queue.Stop();
  EXPECT_EQ(taught.largest, 100U);
}

TEST(Slots, AreAskedForByWhatTakesLongWhileTheyStandIdle) {
  const std::unique_ptr<Request> request = Waiting(1);
  for (const auto& [microseconds, slots] : {std::pair(700, 1U), {1100, 2U}, {60'000, 2U}}) {
    Taught taught(/*slots=*/2);
    EXPECT_EQ(taught.queue.ChunksFor(*request), 1U);  // No cost is known yet.
    taught.Teach(microseconds);
    EXPECT_TRUE(WaitFor([&] { return taught.queue.ChunksFor(*request) == slots; })) << microseconds;
    taught.holds = true;
    Submit(&taught.queue, 1);
    taught.WaitUntilBegun(3);
    EXPECT_EQ(taught.queue.ChunksFor(*request), 1U);
    taught.holds = false;
  }
}

TEST(Slots, StopWaitsForAllOfThem) {
  Held held;
  std::atomic<bool> stopped = false;
  BatchingQueue queue(Small(1, 100, 3), held.run(), CompleteEarly, held.now());
  for (int i = 0; i < 3; ++i) {
    Submit(&queue, 1);
    held.WaitUntilBegun(i + 1);
  }
  Submit(&queue, 1);
  std::thread stopping([&] {
    queue.Stop();
    stopped = true;
  });
  held.Open(2);  // This slot also runs the fourth batch.
  held.WaitUntilBegun(4);
  held.Open(0);
  EXPECT_FALSE(stopped);  // Slot 1 is still blocked.
  held.Open(1);
  stopping.join();
  EXPECT_EQ(held.runs().size(), 4U);
}

TEST(Slots, DeadlinesHoldInEachOfThem) {
  Held held;
  std::atomic<int> late = 0;
  const auto complete_early = [&late](const EarlyCompletion& completion) {
    EXPECT_TRUE(completion.runs);
    ++late;
  };
  BatchingQueue queue(Small(1, 100, 2), held.run(), complete_early, held.now());
  for (int i = 0; i < 2; ++i) {
    std::unique_ptr<Request> request = Waiting(1);
    request->deadline = held.now()() + std::chrono::milliseconds(20);
    request->answer = [](const Status&, const Response&) {};
    EXPECT_EQ(queue.Submit(request), Admission::kAccepted);
    held.WaitUntilBegun(i + 1);
  }
  held.Pass(21'000);
  EXPECT_TRUE(WaitFor([&] { return late == 2; }));
  held.Open(0);
  held.Open(1);
}

class ManyThreads : public ::testing::TestWithParam<size_t> {};

TEST_P(ManyThreads, EveryAcceptedRequestComesOutOnce) {
  BatchingOptions options = Small(16, 64, GetParam());
  std::vector<std::atomic<int>> in_slot(options.slots);
  constexpr int kThreads = 8;
  constexpr int kEach = 2000;
  std::atomic<int> came_out = 0;
  std::atomic<int> accepted = 0;
  std::vector<std::atomic<int>> times(kThreads * kEach);
  std::vector<CancellationHandle> cancellations(kThreads * kEach);
  {
    BatchingQueue queue(
        options,
        [&in_slot](const Due& due, BatchingQueue* running) {
          EXPECT_EQ(++in_slot[due.lease.number()], 1);
          running->EndRun(due.lease);
          for (const Batch* part : {&due.batch, &due.expired}) {
            for (const auto& request : *part) {
              if (request->answer) request->answer({}, {});
            }
          }
          --in_slot[due.lease.number()];
        },
        [](const EarlyCompletion& early) { early.answer({}, {}); });
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kEach; ++i) {
          // Every third request has a short deadline, and every fifth is cancelled. The last eighth
          // meets a stopped queue.
          const auto mine = static_cast<size_t>(t * kEach + i);
          auto request = Waiting(1 + static_cast<uint32_t>(i % 3));
          request->cancellation = &cancellations[mine];
          if (i % 3 == 0) request->deadline = Clock::now() + std::chrono::microseconds(5);
          request->answer = [&times, &came_out, mine](Status, Response) {
            ++times[mine];
            ++came_out;
          };
          if (queue.Submit(request) == Admission::kAccepted) ++accepted;
          if (i % 5 == 0) queue.Cancel(&cancellations[mine], StatusReason::kAbandoned);
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

INSTANTIATE_TEST_SUITE_P(Slots, ManyThreads, testing::Values(1, 3));

}  // namespace
}  // namespace embershard
