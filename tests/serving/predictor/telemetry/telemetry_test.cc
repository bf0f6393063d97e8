#include "telemetry/telemetry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace embershard {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Counts = std::vector<uint64_t>;

HistogramSnapshot Histogram(const TelemetrySnapshot& read, const std::string& name) {
  for (const NamedHistogram& histogram : read.histograms) {
    if (histogram.name == name) return histogram.values;
  }
  ADD_FAILURE() << "no histogram " << name;
  return {};
}

uint64_t SizeOf(const HistogramSnapshot& histogram) {
  uint64_t size = 0;
  for (const uint64_t count : histogram.counts) size += count;
  return size;
}

TEST(Telemetry, BeginsWithNothingButTheTime) {
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  const double before = seconds();
  const Telemetry telemetry({.sparse_inputs = 2});
  const TelemetrySnapshot read = telemetry.Read();
  EXPECT_GE(read.start_unix_seconds, before);
  EXPECT_LE(read.start_unix_seconds, seconds());
  for (const uint64_t calls : read.interactive_calls) EXPECT_EQ(calls, 0U);
  for (const uint64_t calls : read.background_calls) EXPECT_EQ(calls, 0U);
  EXPECT_EQ(read.unknown_ids, (Counts{0, 0}));
  EXPECT_EQ(read.histograms.size(), 10U);
  for (const NamedHistogram& histogram : read.histograms) EXPECT_EQ(SizeOf(histogram.values), 0U);
  EXPECT_EQ(read.in_flight + read.open_streams + read.examples + read.batches +
                read.bytes_received + read.bytes_sent + read.slow_seen + read.slow_dropped,
            0U);
}

TEST(Telemetry, CountsCallsByOutcomeAndTheOkOnesMoreClosely) {
  Telemetry telemetry({});
  for (int i = 0; i < 4; ++i) telemetry.CountArrival();
  telemetry.CountEnd({.outcome = Outcome::kOk,
                      .total = microseconds(70),
                      .examples = 5,
                      .bytes_received = 100,
                      .bytes_sent = 30});
  telemetry.CountEnd({.outcome = Outcome::kOk,
                      .total = milliseconds(20),
                      .examples = 2,
                      .bytes_received = 10,
                      .bytes_sent = 3});
  telemetry.CountEnd({.outcome = Outcome::kQueueFull,
                      .total = milliseconds(20),
                      .examples = 7,
                      .bytes_received = 1000,
                      .bytes_sent = 9});
  const TelemetrySnapshot read = telemetry.Read();
  EXPECT_EQ(read.Count(Outcome::kOk), 2U);
  EXPECT_EQ(read.Count(Outcome::kQueueFull), 1U);
  EXPECT_EQ(read.Count(Outcome::kRefused), 0U);
  EXPECT_EQ(read.in_flight, 1U);
  EXPECT_EQ(read.examples, 7U);
  EXPECT_EQ(read.bytes_received, 1110U);
  EXPECT_EQ(read.bytes_sent, 33U);
  EXPECT_EQ(Histogram(read, "request_seconds").counts,
            (Counts{0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Histogram(read, "request_seconds").sum, 0.02007);
}

TEST(Telemetry, CountsCallsByPriority) {
  Telemetry telemetry({});
  for (int i = 0; i < 6; ++i) telemetry.CountArrival();
  telemetry.CountEnd({.outcome = Outcome::kOk});
  for (int i = 0; i < 2; ++i) telemetry.CountEnd({.outcome = Outcome::kOk, .is_background = true});
  telemetry.CountEnd({.outcome = Outcome::kDeadlineInfeasible, .is_background = true});
  telemetry.CountEnd({.outcome = Outcome::kRefused});
  const TelemetrySnapshot read = telemetry.Read();
  const auto of = [](const auto& counts, Outcome outcome) {
    return counts[static_cast<size_t>(outcome)];
  };
  EXPECT_EQ(of(read.interactive_calls, Outcome::kOk), 1U);
  EXPECT_EQ(of(read.background_calls, Outcome::kOk), 2U);
  EXPECT_EQ(of(read.interactive_calls, Outcome::kDeadlineInfeasible), 0U);
  EXPECT_EQ(of(read.background_calls, Outcome::kDeadlineInfeasible), 1U);
  EXPECT_EQ(of(read.interactive_calls, Outcome::kRefused), 1U);
  EXPECT_EQ(of(read.background_calls, Outcome::kRefused), 0U);
  EXPECT_EQ(read.Count(Outcome::kOk), 3U);
  EXPECT_EQ(read.in_flight, 1U);
}

TEST(Telemetry, CountsValidRequestsAndBatches) {
  Telemetry telemetry({.sparse_inputs = 3, .full_batch_examples = 10});
  telemetry.CountAdmitted(4, 9);
  telemetry.CountAdmitted(1, 0);
  telemetry.CountQueued(nanoseconds(50'001));
  telemetry.CountQueued(nanoseconds(-1));  // Two clocks may differ.
  telemetry.CountBatch(
      {.requests = 3, .answered = 2, .examples = 5, .lookup_us = 50, .dense_us = 3000});
  telemetry.CountFailedBatch();
  telemetry.CountUnknownIds(2, 4);
  telemetry.CountUnknownIds(0, 1);
  telemetry.CountUnknownIds(2, 1);
  const TelemetrySnapshot read = telemetry.Read();
  EXPECT_EQ(read.batches, 2U);
  EXPECT_EQ(read.unknown_ids, (Counts{1, 0, 5}));
  const auto sum = [&read](const char* name) { return Histogram(read, name).sum; };
  EXPECT_EQ(sum("request_examples"), 5);
  EXPECT_EQ(sum("request_ids"), 9);
  EXPECT_EQ(sum("queue_seconds"), 50'001 / 1e9);
  EXPECT_EQ(sum("lookup_seconds"), 5e-5);
  EXPECT_EQ(sum("dense_seconds"), 3e-3);
  EXPECT_EQ(read.compute_seconds, 2 * 3050e-6);
  EXPECT_EQ(sum("batch_requests"), 3);
  EXPECT_EQ(sum("batch_examples"), 5);
  EXPECT_EQ(sum("batch_fill"), 0.5);
  const HistogramSnapshot fill = Histogram(read, "batch_fill");
  EXPECT_EQ(fill.bounds[7], 0.5);
  EXPECT_EQ(fill.counts[7], 1U);
  EXPECT_EQ(SizeOf(fill), 1U);
  EXPECT_EQ(SizeOf(Histogram(read, "queue_seconds")), 2U);
  EXPECT_EQ(SizeOf(Histogram(read, "request_ids")), 2U);
}

TEST(Telemetry, ABatchOfOneLargeRequestIsFullAndNoMore) {
  Telemetry telemetry({.full_batch_examples = 10});
  telemetry.CountBatch({.requests = 1, .answered = 1, .examples = 35});
  telemetry.CountBatch({.requests = 2, .answered = 2, .examples = 10});
  const HistogramSnapshot fill = Histogram(telemetry.Read(), "batch_fill");
  EXPECT_EQ(fill.bounds.back(), 1.0);
  EXPECT_EQ(fill.counts[fill.bounds.size() - 1], 2U);
  EXPECT_EQ(fill.sum, 2.0);
}

TEST(Telemetry, LosesNothingUnderManyThreadsAndNeverShowsMoreEndsThanArrivals) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 3000;
  Telemetry telemetry({.sparse_inputs = 1, .full_batch_examples = 8});
  std::atomic<int> running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&telemetry, &running] {
      for (int i = 0; i < kCalls; ++i) {
        telemetry.CountArrival();
        telemetry.CountAdmitted(2, 3);
        telemetry.CountQueued(microseconds(1));
        telemetry.CountBatch({.requests = 1, .examples = 2, .lookup_us = 1, .dense_us = 1});
        telemetry.CountUnknownIds(0, 1);
        telemetry.CountEnd({.outcome = i % 3 == 0 ? Outcome::kRefused : Outcome::kOk,
                            .total = microseconds(2),
                            .examples = 2,
                            .bytes_received = 5,
                            .bytes_sent = 4});
      }
      --running;
    });
  }
  while (running > 0) {
    const TelemetrySnapshot read = telemetry.Read();
    EXPECT_LE(read.in_flight, uint64_t{kThreads} * kCalls);  // Does not wrap around below 0.
    EXPECT_GE(read.examples, 2 * read.Count(Outcome::kOk));
    EXPECT_GE(SizeOf(Histogram(read, "request_seconds")), read.Count(Outcome::kOk));
  }
  for (std::thread& thread : threads) thread.join();
  const TelemetrySnapshot read = telemetry.Read();
  EXPECT_EQ(read.Count(Outcome::kOk), 8000U);
  EXPECT_EQ(read.Count(Outcome::kRefused), 4000U);
  EXPECT_EQ(read.in_flight, 0U);
  EXPECT_EQ(read.examples, 16000U);
  EXPECT_EQ(read.bytes_received, 60000U);
  EXPECT_EQ(read.bytes_sent, 32000U);
  EXPECT_EQ(read.batches, 12000U);
  EXPECT_EQ(read.unknown_ids, Counts{12000});
  EXPECT_EQ(Histogram(read, "request_ids").sum, 36000);
  EXPECT_EQ(SizeOf(Histogram(read, "request_seconds")), 8000U);
}

}  // namespace
}  // namespace embershard
