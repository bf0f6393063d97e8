#include "batching/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "batching/batching_queue.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

BatchingOptions OneByOne(size_t slots) {
  return {.max_batch_examples = 1,
          .max_batch_ids = 1,
          .merge_examples = 1,
          .max_queued_examples = 100,
          .max_queued_ids = 1,
          .max_inline = std::chrono::microseconds(0),
          .slots = slots};
}

void NobodyIsLate(const EarlyCompletion& /*late*/) { ADD_FAILURE() << "nothing here is late"; }

std::unique_ptr<Request> OneExample() {
  auto request = std::make_unique<Request>();
  request->num_examples = 1;
  return request;
}

void Submit(BatchingQueue* queue) {
  auto request = OneExample();
  EXPECT_EQ(queue->Submit(request), Admission::kAccepted);
}

TEST(WorkerPool, RunsAQueueAfterAnotherHasStopped) {
  const auto threads = std::make_shared<WorkerPool>(1);
  std::vector<std::thread::id> ran_on;  // Needs no lock: the pool has one thread.
  const auto run = [&ran_on](const Due& due, BatchingQueue* queue) {
    ran_on.push_back(std::this_thread::get_id());
    queue->EndRun(due.lease);
  };
  auto before =
      std::make_unique<BatchingQueue>(OneByOne(1), run, NobodyIsLate, Clock::now, threads);
  BatchingQueue after(OneByOne(1), run, NobodyIsLate, Clock::now, threads);
  Submit(before.get());
  before.reset();  // Stops this queue first.
  Submit(&after);
  after.Stop();
  ASSERT_EQ(ran_on.size(), 2U);
  EXPECT_EQ(ran_on[0], ran_on[1]);
  EXPECT_NE(ran_on[0], std::this_thread::get_id());
}

// A pool of one thread, blocked in a batch of `busy` until it is released, and another queue.
class Occupied {
 public:
  Occupied() {
    Submit(&busy);
    runs_.wait();
  }
  ~Occupied() { Open(); }

  void Open() {
    if (!open_.try_wait()) open_.count_down();
  }

 private:
  BatchingQueue::RunBatch Stand() {
    return [this](const Due& due, BatchingQueue* queue) {
      runs_.count_down();
      open_.wait();
      queue->EndRun(due.lease);
    };
  }

  std::latch runs_{1};
  std::latch open_{1};

 public:
  const std::shared_ptr<WorkerPool> threads = std::make_shared<WorkerPool>(1);
  std::atomic<int> late = 0;  // Early completions of `other`.
  BatchingQueue busy{OneByOne(1), Stand(), NobodyIsLate, Clock::now, threads};
  BatchingQueue other{OneByOne(1), Stand(), [this](const EarlyCompletion&) { ++late; }, Clock::now,
                      threads};
};

TEST(WorkerPool, AQueueStopsWithoutAWorkerWhenItsLastRequestIsCancelled) {
  Occupied occupied;
  BatchingQueue* const other = &occupied.other;
  CancellationHandle cancellation;
  auto request = OneExample();
  request->cancellation = &cancellation;
  ASSERT_EQ(other->Submit(request), Admission::kAccepted);
  std::future<void> stopped = std::async(std::launch::async, [other] { other->Stop(); });
  EXPECT_TRUE(WaitFor([other] {
    auto more = OneExample();
    // The queue has no room for it, so it is refused until the queue stops.
    more->num_examples = 1000;
    return other->Submit(more) == Admission::kStopped;
  }));
  other->Cancel(&cancellation, StatusReason::kAbandoned);
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(occupied.late, 1);
}

TEST(WorkerPool, AQueueStopsWithoutAWorkerWhenItsLastRequestExpires) {
  Occupied occupied;
  BatchingQueue* const other = &occupied.other;
  auto request = OneExample();
  request->deadline = Clock::now() + std::chrono::milliseconds(200);
  ASSERT_EQ(other->Submit(request), Admission::kAccepted);
  std::future<void> stopped = std::async(std::launch::async, [other] { other->Stop(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(occupied.late, 1);
}

TEST(WorkerPool, RunsBatchesOfTwoQueuesAtOnce) {
  constexpr int kRounds = 100;
  const auto threads = std::make_shared<WorkerPool>(2);
  std::atomic<int> begun_of_a = 0;
  std::atomic<int> begun_of_b = 0;
  // Each batch blocks until the batch of the other queue has begun.
  const auto run = [](std::atomic<int>* own, std::atomic<int>* other) {
    return [own, other](const Due& due, BatchingQueue* queue) {
      const int round = ++*own;
      EXPECT_TRUE(WaitFor([&] { return *other >= round; }));
      queue->EndRun(due.lease);
    };
  };
  BatchingQueue a(OneByOne(2), run(&begun_of_a, &begun_of_b), NobodyIsLate, Clock::now, threads);
  BatchingQueue b(OneByOne(2), run(&begun_of_b, &begun_of_a), NobodyIsLate, Clock::now, threads);
  for (int round = 1; round <= kRounds; ++round) {
    // In some rounds both requests arrive before the woken thread looks at the queues.
    MutexLock held(threads->mutex());
    std::atomic<int> about = 0;
    std::vector<std::thread> clients;
    for (BatchingQueue* const queue : {&a, &b}) {
      clients.emplace_back([&about, queue] {
        ++about;
        Submit(queue);
      });
    }
    EXPECT_TRUE(WaitFor([&about] { return about == 2; }));
    held.Unlock();
    for (std::thread& client : clients) client.join();
    ASSERT_TRUE(WaitFor([&] { return begun_of_a == round && begun_of_b == round; }));
  }
}

// Counts the batches that run at once, over several queues.
class Counting {
 public:
  BatchingQueue::RunBatch run() {
    return [this](const Due& due, BatchingQueue* queue) {
      const int running = ++running_;
      int most = most_;
      while (running > most && !most_.compare_exchange_weak(most, running)) continue;
      std::this_thread::yield();
      --running_;
      ++runs;
      queue->EndRun(due.lease);
    };
  }
  int most() const { return most_; }
  std::atomic<int> runs = 0;

 private:
  std::atomic<int> running_ = 0;
  std::atomic<int> most_ = 0;
};

TEST(WorkerPool, RunsNoMoreBatchesAtOnceThanSlotsWithInlineCallersToo) {
  constexpr int kClients = 6;
  constexpr int kEach = 200;
  const auto pool = std::make_shared<WorkerPool>(2);
  BatchingOptions options = OneByOne(2);
  options.max_queued_examples = kClients * kEach;
  // Clients run a request inline if its queue is idle.
  options.max_inline = std::chrono::seconds(1);
  Counting counting;
  std::vector<std::unique_ptr<BatchingQueue>> queues;
  for (const char* const model : {"a", "b", "b"}) {
    queues.push_back(std::make_unique<BatchingQueue>(options, counting.run(), NobodyIsLate,
                                                     Clock::now, pool, QueueOwner{.model = model}));
  }
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([queue = queues[client % queues.size()].get()] {
      for (int i = 0; i < kEach; ++i) Submit(queue);
    });
  }
  for (std::thread& client : clients) client.join();
  for (const auto& queue : queues) queue->Stop();
  EXPECT_EQ(counting.runs, kClients * kEach);
  EXPECT_LE(counting.most(), 2);
}

TEST(WorkerPool, ReplacesAWorkerWhoseBatchDoesNotEndAndWithdrawsItsQueue) {
  const auto pool =
      std::make_shared<WorkerPool>(1, WorkerPoolOptions{.stuck_after = std::chrono::seconds(1)});
  std::latch end{1};
  std::atomic<int> early = 0;
  std::atomic<bool> exhausted = false;
  std::latch withdrawn{1};
  std::atomic<int> stood = 0;
  const auto stand = [&](const Due& due, BatchingQueue* queue) {
    ++stood;
    end.wait();
    queue->EndRun(due.lease);
  };
  const auto count = [&early](const EarlyCompletion& completion) {
    EXPECT_TRUE(completion.withdrawn);
    ++early;
  };
  BatchingQueue looping(OneByOne(1), stand, count, Clock::now, pool,
                        {.model = "canary", .on_withdrawn = [&](bool last) {
                           exhausted = last;
                           withdrawn.count_down();
                         }});
  std::atomic<int> runs = 0;
  BatchingQueue other(OneByOne(1),
                      [&runs](const Due& due, BatchingQueue* queue) {
                        ++runs;
                        queue->EndRun(due.lease);
                      },
                      NobodyIsLate, Clock::now, pool, {.model = "other"});
  auto running = OneExample();
  running->answer = [](const Status&, const Response&) {};
  ASSERT_EQ(looping.Submit(running), Admission::kAccepted);
  auto queued = OneExample();
  queued->answer = [](const Status&, const Response&) {};
  ASSERT_EQ(looping.Submit(queued), Admission::kAccepted);
  Submit(&other);  // Waits for the only slot.
  withdrawn.wait();
  EXPECT_TRUE(WaitFor([&] { return runs == 1 && early == 2; }));
  EXPECT_TRUE(exhausted);  // Every slot has had a worker replaced.
  auto refused = OneExample();
  EXPECT_EQ(looping.Submit(refused), Admission::kWithdrawn);
  Submit(&other);
  EXPECT_TRUE(WaitFor([&] { return runs == 2; }));
  end.count_down();
  other.Stop();
  looping.Stop();
  EXPECT_EQ(stood, 1);  // No second batch of the model ran in the stuck batch's slot.
}

TEST(WorkerPool, ASlotThatIsLeasedAnewKeepsItsNumberWithOtherBuffers) {
  const auto pool = std::make_shared<WorkerPool>(
      2, WorkerPoolOptions{.stuck_after = std::chrono::milliseconds(1)});
  std::latch end{1};
  std::mutex mutex;
  std::vector<Slot*> stuck;
  std::vector<Slot*> anew;
  const auto run = [&](std::vector<Slot*>* slots) {
    return [&, slots](const Due& due, BatchingQueue* queue) {
      {
        const std::lock_guard lock(mutex);
        slots->push_back(due.lease.buffers.get());
      }
      end.wait();
      queue->EndRun(due.lease);
    };
  };
  const auto count = [&mutex](const std::vector<Slot*>& slots) {
    const std::lock_guard lock(mutex);
    return slots.size();
  };
  std::latch withdrawn{2};
  const QueueOwner owner = {.model = "looping",
                            .on_withdrawn = [&withdrawn](bool) { withdrawn.count_down(); }};
  BatchingQueue first(OneByOne(2), run(&stuck), NobodyIsLate, Clock::now, pool, owner);
  BatchingQueue second(OneByOne(2), run(&stuck), NobodyIsLate, Clock::now, pool, owner);
  Submit(&first);
  Submit(&second);
  withdrawn.wait();
  // The pool replaces no more workers than it has slots, so these batches may take long.
  BatchingQueue other(OneByOne(2), run(&anew), NobodyIsLate, Clock::now, pool, {.model = "other"});
  BatchingQueue another(OneByOne(2), run(&anew), NobodyIsLate, Clock::now, pool, {.model = "more"});
  Submit(&other);
  Submit(&another);
  EXPECT_TRUE(WaitFor([&] { return count(anew) == 2; }));
  const std::set<Slot*> buffers = {stuck[0], stuck[1], anew[0], anew[1]};
  EXPECT_EQ(buffers.size(), 4U);
  EXPECT_EQ(anew[0]->number + anew[1]->number, 1U);  // 0 and 1, in either order.
  end.count_down();
}

}  // namespace
}  // namespace embershard
