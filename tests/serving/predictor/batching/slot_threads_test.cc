#include "batching/slot_threads.h"

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

// Runs as often as it is told to, and says so.
class Counted final : public SlotWork {
 public:
  Counted(char name, int runs, std::vector<char>* log) : name_(name), runs_(runs), log_(log) {}

  bool CanRun() const override { return runs_ > 0; }
  bool RunIfAny(std::unique_lock<std::mutex>* /*lock*/) override {
    if (!CanRun()) return false;
    --runs_;
    log_->push_back(name_);
    return true;
  }

 private:
  const char name_;
  int runs_;
  std::vector<char>* const log_;
};

TEST(SlotThreads, WorkHasItsTurnInTurn) {
  std::vector<char> log;
  Counted a('a', 3, &log);
  Counted b('b', 2, &log);
  SlotThreads threads(1);
  {
    const std::lock_guard lock(threads.mutex());
    threads.Add(&a);
    threads.Add(&b);
    threads.WakeOne();
  }
  EXPECT_TRUE(WaitFor([&] {
    const std::lock_guard lock(threads.mutex());
    return log.size() == 5;
  }));
  const std::lock_guard lock(threads.mutex());
  EXPECT_EQ(log, (std::vector<char>{'b', 'a', 'b', 'a', 'a'}));
  threads.Remove(&a);
  threads.Remove(&b);
}

TEST(SlotThreads, WhoBeginsIsNumbered) {
  std::mutex mutex;
  std::set<size_t> begun;
  {
    SlotThreads threads(3, [&](size_t thread) {
      const std::lock_guard lock(mutex);
      begun.insert(thread);
    });
    EXPECT_EQ(threads.size(), 3U);
    EXPECT_TRUE(WaitFor([&] {
      const std::lock_guard lock(mutex);
      return begun.size() == 3;
    }));
  }
  EXPECT_EQ(begun, (std::set<size_t>{0, 1, 2}));
}

BatchingOptions OneByOne(size_t slots) {
  return {.max_batch_examples = 1,
          .max_batch_ids = 1,
          .merge_examples = 1,
          .max_queued_examples = 100,
          .max_queued_ids = 1,
          .max_inline = std::chrono::microseconds(0),
          .slots = slots};
}

void NobodyIsLate(const Late& /*late*/) { ADD_FAILURE() << "nothing here is late"; }

std::unique_ptr<Request> OneExample() {
  auto request = std::make_unique<Request>();
  request->num_examples = 1;
  return request;
}

void Submit(BatchingQueue* queue) {
  auto request = OneExample();
  EXPECT_EQ(queue->Submit(request), Admission::kAccepted);
}

TEST(SlotThreads, AreThoseOfTheQueueBeforeAndGoOnWhenThatHasStopped) {
  const auto threads = std::make_shared<SlotThreads>(1);
  std::vector<std::thread::id> ran_on;  // One thread runs all.
  const auto run = [&ran_on](const Due& due, BatchingQueue* queue) {
    ran_on.push_back(std::this_thread::get_id());
    queue->EndRun(due.slot);
  };
  auto before =
      std::make_unique<BatchingQueue>(OneByOne(1), run, NobodyIsLate, Clock::now, threads);
  BatchingQueue after(OneByOne(1), run, NobodyIsLate, Clock::now, threads);
  Submit(before.get());
  before.reset();  // Stops first.
  Submit(&after);
  after.Stop();
  ASSERT_EQ(ran_on.size(), 2U);
  EXPECT_EQ(ran_on[0], ran_on[1]);
  EXPECT_NE(ran_on[0], std::this_thread::get_id());
}

// One thread, which stands in a batch of one queue until it is let go, and another queue.
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
      queue->EndRun(due.slot);
    };
  }

  std::latch runs_{1};
  std::latch open_{1};

 public:
  const std::shared_ptr<SlotThreads> threads = std::make_shared<SlotThreads>(1);
  std::atomic<int> late = 0;  // Of `other`.
  BatchingQueue busy{OneByOne(1), Stand(), NobodyIsLate, Clock::now, threads};
  BatchingQueue other{OneByOne(1), Stand(), [this](const Late&) { ++late; }, Clock::now, threads};
};

TEST(SlotThreads, AQueueStopsWithoutThemWhereItsLastRequestLeaves) {
  Occupied occupied;
  BatchingQueue* const other = &occupied.other;
  Ticket ticket;
  auto request = OneExample();
  request->ticket = &ticket;
  ASSERT_EQ(other->Submit(request), Admission::kAccepted);
  std::future<void> stopped = std::async(std::launch::async, [other] { other->Stop(); });
  EXPECT_TRUE(WaitFor([other] {
    auto more = OneExample();
    more->num_examples = 1000;  // More than there is room for until it stops.
    return other->Submit(more) == Admission::kStopped;
  }));
  other->Cancel(&ticket, StatusReason::kAbandoned);
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(occupied.late, 1);
}

TEST(SlotThreads, AQueueStopsWithoutThemWhereItsLastRequestExpires) {
  Occupied occupied;
  BatchingQueue* const other = &occupied.other;
  auto request = OneExample();
  request->deadline = Clock::now() + std::chrono::milliseconds(200);
  ASSERT_EQ(other->Submit(request), Admission::kAccepted);
  std::future<void> stopped = std::async(std::launch::async, [other] { other->Stop(); });
  EXPECT_EQ(stopped.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(occupied.late, 1);
}

TEST(SlotThreads, AreStuckWhileOneIsInABatchForLongerThanAsked) {
  Occupied occupied;
  EXPECT_TRUE(occupied.threads->is_stuck(std::chrono::nanoseconds(0)));
  EXPECT_FALSE(occupied.threads->is_stuck(std::chrono::hours(1)));
  occupied.Open();
  occupied.busy.Stop();
  EXPECT_TRUE(WaitFor([&] { return !occupied.threads->is_stuck(std::chrono::nanoseconds(0)); }));
}

TEST(SlotThreads, ABatchOfOneQueueRunsBesideABatchOfAnother) {
  constexpr int kRounds = 100;
  const auto threads = std::make_shared<SlotThreads>(2);
  std::atomic<int> begun_of_a = 0;
  std::atomic<int> begun_of_b = 0;
  // Each stands still until the other has begun.
  const auto run = [](std::atomic<int>* own, std::atomic<int>* other) {
    return [own, other](const Due& due, BatchingQueue* queue) {
      const int round = ++*own;
      EXPECT_TRUE(WaitFor([&] { return *other >= round; }));
      queue->EndRun(due.slot);
    };
  };
  BatchingQueue a(OneByOne(2), run(&begun_of_a, &begun_of_b), NobodyIsLate, Clock::now, threads);
  BatchingQueue b(OneByOne(2), run(&begun_of_b, &begun_of_a), NobodyIsLate, Clock::now, threads);
  for (int round = 1; round <= kRounds; ++round) {
    // In some rounds both requests are there before the thread that the first one wakes has looked.
    std::unique_lock held(threads->mutex());
    std::atomic<int> about = 0;
    std::vector<std::thread> clients;
    for (BatchingQueue* const queue : {&a, &b}) {
      clients.emplace_back([&about, queue] {
        ++about;
        Submit(queue);
      });
    }
    EXPECT_TRUE(WaitFor([&about] { return about == 2; }));
    held.unlock();
    for (std::thread& client : clients) client.join();
    ASSERT_TRUE(WaitFor([&] { return begun_of_a == round && begun_of_b == round; }));
  }
}

}  // namespace
}  // namespace embershard
