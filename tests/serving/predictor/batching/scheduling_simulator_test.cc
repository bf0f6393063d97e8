// Replays traces against the scheduling policy, without threads or a clock. Test names begin with
// the rows of the table in docs/scheduling.md.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/divide_up.h"
#include "batching/batch_former.h"
#include "batching/dispatch_policy.h"
#include "batching/fair_share.h"
#include "batching/forecast.h"
#include "batching/split_request.h"

namespace embershard {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kNoDeadline = std::chrono::hours(1);
constexpr ChunkBudget kBackground = {.examples = 256, .ids = 1 << 20};

BatchingOptions Options(size_t slots) {
  return {.max_batch_examples = kBackground.examples,
          .max_batch_ids = kBackground.ids,
          .merge_examples = kBackground.examples,
          .max_queued_examples = 1 << 16,
          .max_queued_ids = kBackground.ids,
          .slots = slots};
}

// Batches take `fixed`, and `each` for each of their examples.
struct Cost {
  microseconds fixed{0};
  microseconds each{0};
};

using Sizes = std::vector<uint32_t>;  // Examples of the requests of a batch.

class Simulator {
 public:
  // The forecast has seen a batch of each power of two.
  Simulator(size_t slots, const Cost& cost)
      : cost_(cost), former_(Options(slots)), forecast_(Options(slots)), running_(slots) {
    for (uint32_t examples = 1; examples <= kBackground.examples; examples *= 2) {
      Arrive(examples);
      RunFor(milliseconds(50));
    }
    batches.clear();
    latencies.clear();
  }

  Admission Arrive(uint32_t examples, Clock::duration timeout = kNoDeadline,
                   Priority priority = Priority::kInteractive) {
    auto request = std::make_unique<Request>();
    request->num_examples = examples;
    request->arrival = now_;
    request->deadline = now_ + timeout;
    request->priority = priority;
    if (IsLarger(*request, kBackground)) {
      request->split = std::make_shared<SplitRequest>(&schema_, kBackground, *request,
                                                      [](const SplitRequest&) { return nullptr; });
    }
    const Admission admission = former_.Add(request, forecast_, now_);
    ++admissions[admission];
    Dispatch();
    return admission;
  }

  // Runs for `time` and calls `arrive` every `interval`, first now.
  template <class Arrivals>
  void RunFor(Clock::duration time, Clock::duration interval, const Arrivals& arrive) {
    const Clock::time_point end = now_ + time;
    for (Clock::time_point next = now_; next < end; next += interval) {
      RunUntil(next);
      arrive();
    }
    RunUntil(end);
  }
  void RunFor(Clock::duration time) { RunUntil(now_ + time); }

  std::map<Admission, int> admissions;
  std::vector<Sizes> batches;
  std::vector<Clock::duration> latencies;  // Requests and chunks that ran.
  int expired = 0;
  int background = 0;  // Batches with a background request.

 private:
  struct Running {
    bool busy = false;
    Due due;
    Clock::time_point end;
  };

  void RunUntil(Clock::time_point end) {
    while (true) {
      Clock::time_point next = std::min(end, former_.next_deadline());
      for (const Running& run : running_) {
        if (run.busy) next = std::min(next, run.end);
      }
      if (!IsIdle() && former_.can_take() && Free() > 0)
        next = std::min(next, NextDispatchTime(Beside()));
      now_ = std::max(now_, next);
      EndBatches();
      while (former_.TakeExpired(now_) != nullptr) ++expired;
      Dispatch();
      if (now_ >= end) return;
    }
  }

  size_t Free() const {
    return static_cast<size_t>(std::ranges::count(running_, false, &Running::busy));
  }
  bool IsIdle() const { return Free() == running_.size(); }

  DispatchQuestion Beside() const {
    const BatchSize& queued = former_.queued().work;
    return {.slots = running_.size(),
            .free = Free(),
            .has_chunk = former_.has_chunk(),
            .fills_batch = former_.fills_batch(),
            .requests = queued.requests,
            .work = forecast_.OfBatch(queued),
            .deadline = former_.next_deadline(),
            .first_end = forecast_.FirstEnd(now_),
            .now = now_};
  }

  void Dispatch() {
    while (Free() > 0 && former_.can_take() && (IsIdle() || ShouldDispatch(Beside()))) {
      const auto slot = std::ranges::find(running_, false, &Running::busy);
      *slot = {.busy = true, .due = former_.Take(now_), .end = now_ + cost_.fixed};
      expired += static_cast<int>(slot->due.expired.size());
      Sizes sizes;
      BatchSize size = {.requests = slot->due.batch.size()};
      bool has_background = false;
      for (const auto& request : slot->due.batch) {
        sizes.push_back(request->num_examples);
        size.examples += request->num_examples;
        has_background |= request->priority == Priority::kBackground;
      }
      slot->end += size.examples * cost_.each;
      background += has_background ? 1 : 0;
      forecast_.RunBegins(static_cast<size_t>(slot - running_.begin()), size, now_);
      batches.push_back(std::move(sizes));
    }
  }

  void EndBatches() {
    for (size_t slot = 0; slot < running_.size(); ++slot) {
      Running& run = running_[slot];
      if (!run.busy || run.end > now_) continue;
      for (const auto& request : run.due.batch) latencies.push_back(now_ - request->arrival);
      forecast_.RunEnds(slot, now_);
      run = {};
    }
  }

  const Cost cost_;
  const Schema schema_;
  BatchFormer former_;
  Forecast forecast_;
  std::vector<Running> running_;
  Clock::time_point now_{std::chrono::hours(1)};
};

TEST(SchedulingSimulator, Row1And2MergeABurst) {
  Simulator simulator(1, {.fixed = microseconds(1000), .each = microseconds(10)});
  for (int i = 0; i < 600; ++i) ASSERT_EQ(simulator.Arrive(1), Admission::kAccepted);
  simulator.RunFor(seconds(1));
  std::vector<size_t> requests;
  for (const Sizes& batch : simulator.batches) requests.push_back(batch.size());
  EXPECT_EQ(requests, (std::vector<size_t>{1, 256, 256, 87}));
}

TEST(SchedulingSimulator, Row3MergesShortWorkBesideARunningSlot) {
  Simulator simulator(2, {.fixed = microseconds(100), .each = microseconds(100)});
  simulator.Arrive(16);
  simulator.Arrive(1);
  simulator.RunFor(microseconds(500));
  simulator.Arrive(2);
  simulator.RunFor(seconds(1));
  EXPECT_EQ(simulator.batches, (std::vector<Sizes>{{16}, {1, 2}}));
}

TEST(SchedulingSimulator, Row4DispatchesLongRequestsToTheFreeSlot) {
  Simulator simulator(2, {.fixed = microseconds(100), .each = microseconds(100)});
  simulator.Arrive(16);
  simulator.Arrive(16);
  simulator.RunFor(microseconds(1));
  EXPECT_EQ(simulator.batches, (std::vector<Sizes>{{16}, {16}}));
}

TEST(SchedulingSimulator, Row5BoundsTheWaitForARunningSlot) {
  Simulator simulator(2, {.fixed = microseconds(100), .each = microseconds(100)});
  simulator.Arrive(256);
  simulator.Arrive(1);
  simulator.RunFor(microseconds(1));
  EXPECT_EQ(simulator.batches, (std::vector<Sizes>{{256}, {1}}));
}

TEST(SchedulingSimulator, Row6RunsTheEarliestDeadlineFirst) {
  Simulator simulator(1, {.fixed = microseconds(100), .each = microseconds(10)});
  simulator.Arrive(256);
  simulator.Arrive(225, milliseconds(900));
  simulator.Arrive(175, milliseconds(700));
  simulator.Arrive(200, milliseconds(800));
  simulator.RunFor(seconds(1));
  EXPECT_EQ(simulator.batches, (std::vector<Sizes>{{256}, {175}, {200}, {225}}));
}

TEST(SchedulingSimulator, Row7FillsTheBatchWithBackground) {
  Simulator simulator(1, {.fixed = microseconds(100), .each = microseconds(10)});
  simulator.Arrive(256);
  simulator.Arrive(100, milliseconds(500), Priority::kBackground);
  simulator.Arrive(100, kNoDeadline);
  simulator.Arrive(150, kNoDeadline);
  simulator.RunFor(seconds(1));
  EXPECT_EQ(simulator.batches, (std::vector<Sizes>{{256}, {100, 150}, {100}}));
}

TEST(SchedulingSimulator, Row8GivesBackgroundAnEighthOfTheBatches) {
  Simulator simulator(1, {.fixed = microseconds(100), .each = microseconds(10)});
  simulator.RunFor(milliseconds(300), milliseconds(1), [&] {
    simulator.Arrive(200);
    simulator.Arrive(200, kNoDeadline, Priority::kBackground);
  });
  EXPECT_NEAR(simulator.background / static_cast<double>(simulator.batches.size()), 1.0 / 8, 0.02);
}

TEST(SchedulingSimulator, Row9RefusesInfeasibleDeadlinesAndMeetsTheOthers) {
  Simulator simulator(2, {.fixed = microseconds(500), .each = microseconds(50)});
  // Three times the load that two slots can run.
  simulator.RunFor(seconds(1), microseconds(850), [&] {
    simulator.Arrive(64, milliseconds(30));
    simulator.Arrive(32, milliseconds(30));
  });
  EXPECT_GT(simulator.latencies.size(), 400U);
  EXPECT_LT(simulator.latencies.size(), 1000U);  // 2354 arrived.
  const auto late = std::ranges::count_if(
      simulator.latencies, [](Clock::duration latency) { return latency > milliseconds(30); });
  EXPECT_LE(static_cast<size_t>(late + simulator.expired), simulator.latencies.size() / 20);
}

TEST(SchedulingSimulator, Row10AcceptsWhateverTheForecastOnAnIdleModel) {
  Simulator simulator(1, {.fixed = microseconds(100), .each = microseconds(100)});
  EXPECT_EQ(simulator.Arrive(256, milliseconds(10)), Admission::kAccepted);
  EXPECT_NE(simulator.Arrive(256, milliseconds(10)), Admission::kAccepted);
}

TEST(SchedulingSimulator, Row11SplitsAnOversizeRequestOverFreeSlots) {
  Simulator simulator(4, {.fixed = microseconds(100), .each = microseconds(20)});
  simulator.Arrive(1000);
  simulator.RunFor(microseconds(1));
  EXPECT_EQ(simulator.batches, (std::vector<Sizes>{{250}, {250}, {250}, {250}}));
}

TEST(SchedulingSimulator, Row12RunsOtherRequestsBetweenChunks) {
  Simulator simulator(1, {.fixed = microseconds(100), .each = microseconds(20)});
  simulator.Arrive(1000, seconds(1));
  for (int i = 0; i < 3; ++i) simulator.Arrive(200, seconds(2));
  simulator.RunFor(seconds(1));
  EXPECT_EQ(simulator.batches,
            (std::vector<Sizes>{{250}, {200}, {250}, {200}, {250}, {200}, {250}}));
}

TEST(SchedulingSimulator, Row13DropsQueuedRequestsWhoseDeadlinePasses) {
  Simulator simulator(1, {.fixed = microseconds(100), .each = microseconds(100)});
  simulator.RunFor(seconds(2));  // Admission has forgotten the costs by then.
  simulator.Arrive(256);
  ASSERT_EQ(simulator.Arrive(1, milliseconds(10)), Admission::kAccepted);
  simulator.RunFor(seconds(1));
  EXPECT_EQ(simulator.expired, 1);
  EXPECT_EQ(simulator.batches, (std::vector<Sizes>{{256}}));
}

TEST(SchedulingSimulator, Row14RefusesBeyondTheQueueAndBackgroundBeyondHalfOfIt) {
  Simulator simulator(1, {.fixed = microseconds(100), .each = microseconds(1)});
  simulator.Arrive(256);
  for (int i = 0; i < 200; ++i) simulator.Arrive(256, kNoDeadline, Priority::kBackground);
  EXPECT_EQ(simulator.admissions[Admission::kQueueFull], 200 - 128);
  simulator.admissions.clear();
  for (int i = 0; i < 200; ++i) simulator.Arrive(256);
  EXPECT_EQ(simulator.admissions[Admission::kQueueFull], 200 - 128);
}

// Models that share one slot.
class SharedSlot {
 public:
  struct Queue {
    Cost cost;
    FairShare::Model* share;
    BatchFormer former{Options(1)};
    Forecast forecast{Options(1)};
    Clock::duration busy{0};  // Time of its batches.
    Clock::duration longest_batch{0};
    Clock::duration longest_wait{0};  // Requests that ran.
  };

  // The forecast has seen a batch of each power of two.
  Queue* Add(const std::string& name, double weight, const Cost& cost) {
    queues_.push_back(std::make_unique<Queue>(Queue{cost, shares_.Add(name, weight)}));
    Queue* const queue = queues_.back().get();
    for (uint32_t examples = 1; examples <= kBackground.examples; examples *= 2) {
      queue->forecast.RunBegins(0, {.requests = 1, .examples = examples}, now_);
      now_ += cost.fixed + examples * cost.each;
      queue->forecast.RunEnds(0, now_);
    }
    return queue;
  }

  Admission Arrive(Queue* queue, uint32_t examples, Clock::duration timeout = kNoDeadline) {
    auto request = std::make_unique<Request>();
    request->num_examples = examples;
    request->arrival = now_;
    request->deadline = now_ + timeout;
    const double share = shares_.ShareOf(*queue->share, now_);
    const size_t chunks =
        share < 1 ? PartsOf(*queue, {.requests = 1, .examples = examples}) : size_t{1};
    const ChunkBudget budget = {.examples = static_cast<uint32_t>(DivideUp(examples, chunks)),
                                .ids = kBackground.ids};
    if (IsLarger(*request, budget)) {
      request->split = std::make_shared<SplitRequest>(&schema_, budget, *request,
                                                      [](const SplitRequest&) { return nullptr; });
    }
    return queue->former.Add(request, queue->forecast, now_, share);
  }

  // One batch of the model whose turn it is. False: nothing waits.
  bool RunOne() {
    Queue* next = nullptr;
    for (const auto& queue : queues_) {
      if (!queue->former.can_take()) continue;
      if (next == nullptr || shares_.IsBefore(*queue->share, *next->share)) next = queue.get();
    }
    if (next == nullptr) return false;
    const bool shared = shares_.ShareOf(*next->share, now_) < 1;
    const BatchSize work = next->former.queued().work;
    Due due =
        next->former.Take(now_, shared ? DivideUp(work.examples, PartsOf(*next, work)) : SIZE_MAX);
    BatchSize size = {.requests = due.batch.size()};
    for (const auto& request : due.batch) {
      size.examples += request->num_examples;
      next->longest_wait = std::max(next->longest_wait, now_ - request->arrival);
    }
    const auto expected = next->forecast.OfBatch(size);
    shares_.Begin(next->share, expected, now_);
    next->forecast.RunBegins(0, size, now_);
    const Clock::duration took = next->cost.fixed + size.examples * next->cost.each;
    now_ += took;
    next->forecast.RunEnds(0, now_);
    shares_.End(next->share, expected, took);
    next->busy += took;
    next->longest_batch = std::max(next->longest_batch, took);
    return true;
  }

  Clock::time_point now() const { return now_; }

 private:
  size_t PartsOf(const Queue& queue, const BatchSize& work) const {
    return queue.forecast.PartsWithin(FairShare::kChunk, work, kBackground.examples, now_);
  }

  const Schema schema_;
  FairShare shares_;
  std::vector<std::unique_ptr<Queue>> queues_;
  Clock::time_point now_{std::chrono::hours(1)};
};

TEST(SchedulingSimulator, Row15DividesTheTimeOfBusyModelsByTheirWeights) {
  SharedSlot slot;
  const auto cheap = slot.Add("cheap", 1, {.fixed = microseconds(100), .each = microseconds(10)});
  const auto dear = slot.Add("dear", 2, {.fixed = microseconds(1000), .each = microseconds(100)});
  const Clock::time_point end = slot.now() + seconds(2);
  while (slot.now() < end) {
    for (SharedSlot::Queue* const queue : {cheap, dear}) {
      while (queue->former.queued().requests < 64) slot.Arrive(queue, 8);
    }
    ASSERT_TRUE(slot.RunOne());
  }
  const std::chrono::duration<double> of_cheap = cheap->busy;
  const std::chrono::duration<double> of_dear = dear->busy;
  EXPECT_NEAR(of_dear / of_cheap, 2, 0.05);
}

TEST(SchedulingSimulator, Row15GivesAnIdleModelNoCreditAndNoWait) {
  SharedSlot slot;
  const auto rare = slot.Add("rare", 1, {.fixed = microseconds(100), .each = microseconds(10)});
  const auto busy = slot.Add("busy", 1, {.fixed = microseconds(1000), .each = microseconds(100)});
  for (int i = 0; i < 200; ++i) {
    while (busy->former.queued().requests < 64) slot.Arrive(busy, 8);
    if (i % 10 == 0) slot.Arrive(rare, 1);
    ASSERT_TRUE(slot.RunOne());
  }
  EXPECT_EQ(rare->longest_wait, microseconds(0));  // It runs next whenever it has a request.
}

TEST(SchedulingSimulator, Row16CutsBatchesToFiveMillisecondsWhileAnotherModelIsActive) {
  SharedSlot slot;
  const auto small = slot.Add("small", 1, {.fixed = microseconds(100), .each = microseconds(10)});
  const auto large = slot.Add("large", 1, {.fixed = microseconds(0), .each = microseconds(100)});
  for (int i = 0; i < 32; ++i) slot.Arrive(large, 8);
  ASSERT_TRUE(slot.RunOne());
  EXPECT_EQ(large->longest_batch, microseconds(25'600));  // No other model is active.
  large->longest_batch = {};
  for (int i = 0; i < 100; ++i) {
    slot.Arrive(small, 1);
    while (large->former.queued().requests < 32) slot.Arrive(large, 8);
    if (i == 0) slot.RunOne();  // Runs the small model: from here on both are active.
    ASSERT_TRUE(slot.RunOne());
  }
  EXPECT_GT(large->longest_batch, milliseconds(3));
  EXPECT_LE(large->longest_batch, milliseconds(5));
}

TEST(SchedulingSimulator, Row16CutsNoFurtherThanHalvesTakeAnEighthLonger) {
  SharedSlot slot;
  const auto small = slot.Add("small", 1, {.fixed = microseconds(100), .each = microseconds(10)});
  const auto linear = slot.Add("linear", 1, {.fixed = microseconds(0), .each = microseconds(100)});
  const auto fixed = slot.Add("fixed", 1, {.fixed = microseconds(4000), .each = microseconds(70)});
  slot.Arrive(small, 1);
  ASSERT_TRUE(slot.RunOne());
  slot.Arrive(linear, 128);
  slot.Arrive(fixed, 128);
  while (slot.RunOne()) continue;
  EXPECT_EQ(linear->longest_batch, microseconds(3'200));  // 12.8 ms in four chunks.
  // One batch of 13 ms: two of 64 examples take 8.5 ms each, a third longer together.
  EXPECT_EQ(fixed->longest_batch, microseconds(12'960));
  fixed->longest_batch = {};
  for (int i = 0; i < 16; ++i) slot.Arrive(fixed, 8);
  while (slot.RunOne()) continue;
  EXPECT_EQ(fixed->longest_batch, microseconds(12'960));
}

TEST(SchedulingSimulator, Row17CountsOnlyTheShareOfItsModelForADeadline) {
  SharedSlot slot;
  const auto one = slot.Add("one", 1, {.fixed = microseconds(0), .each = microseconds(100)});
  const auto other = slot.Add("other", 1, {.fixed = microseconds(0), .each = microseconds(100)});
  ASSERT_EQ(slot.Arrive(one, 64, milliseconds(12)), Admission::kAccepted);
  // Two requests of 6.4 ms each take 16 ms with the margin of a quarter, or 32 ms with half of the
  // slot.
  ASSERT_EQ(slot.Arrive(one, 64, milliseconds(20)), Admission::kAccepted);
  while (slot.RunOne()) continue;
  slot.Arrive(other, 1);
  ASSERT_TRUE(slot.RunOne());
  ASSERT_EQ(slot.Arrive(one, 64, milliseconds(12)), Admission::kAccepted);
  EXPECT_EQ(slot.Arrive(one, 64, milliseconds(20)), Admission::kDeadlineInfeasible);
  EXPECT_EQ(slot.Arrive(one, 64, milliseconds(40)), Admission::kAccepted);
}

}  // namespace
}  // namespace embershard
