// Counters of calls and batches: a few relaxed additions per request, without locks or allocations.
//
//   counted by     what
//   every adapter  calls as they arrive and end, bytes, examples of the OK ones, slow ones
//   the engine     valid requests, time in the queue, batches, unknown ids

#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "telemetry/bucketed_histogram.h"
#include "telemetry/outcome.h"
#include "telemetry/slow_log.h"

namespace embershard {

struct TelemetryOptions {
  size_t sparse_inputs = 0;          // Number in the schema.
  uint64_t full_batch_examples = 1;  // Size of a full batch, at least 1.
  Clock::duration slow_request{0};   // Calls that take at least this long are slow. 0: none.
};

struct EndedCall {
  Outcome outcome = Outcome::kOk;
  bool is_background = false;  // Priority `background` rather than `interactive`.
  Clock::duration total{0};    // From arrival to answer.
  uint32_t examples = 0;
  uint64_t bytes_received = 0;
  uint64_t bytes_sent = 0;
};

// Reasons for not copying a sampled request to the shadow version.
enum class ShadowDrop {
  kSchema,          // Inputs or outputs differ.
  kCopiesUnderWay,  // Too many copies under way.
  kBytesUnderWay,   // Too many bytes of copies under way.
};
inline constexpr size_t kShadowDrops = 3;

const char* NameOf(ShadowDrop drop);

struct RanBatch {
  uint64_t requests = 0;
  uint64_t answered = 0;  // Got finite outputs; excludes requests answered early.
  uint64_t examples = 0;
  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
};

struct NamedHistogram {
  const char* name = "";
  HistogramSnapshot values;
};

// Totals since the start. Requests answered before the snapshot are in all of them.
struct TelemetrySnapshot {
  double start_unix_seconds = 0;
  // Ended calls, by outcome.
  std::array<uint64_t, kOutcomes> interactive_calls{};
  std::array<uint64_t, kOutcomes> background_calls{};  // With priority `background`.
  uint64_t in_flight = 0;                              // Calls that have arrived and not ended.
  uint64_t open_streams = 0;
  uint64_t examples = 0;         // Examples of OK calls.
  uint64_t last_ok_unix_ms = 0;  // End of the last OK call. 0: none yet.
  uint64_t batches = 0;          // Includes failed batches.
  uint64_t reruns = 0;           // Reruns of parts of failed batches.
  double compute_seconds = 0;    // Time of each answer's batch: a batch of ten counts ten times.
  std::vector<uint64_t> unknown_ids;  // One for each sparse input.
  uint64_t bytes_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t shadow_sent = 0;                             // Copies sent to this version.
  std::array<uint64_t, kShadowDrops> shadow_dropped{};  // Requests not copied, by reason.
  uint64_t shadow_failed = 0;                           // Copies sent but not answered.
  double shadow_batch_seconds = 0;                      // Time of batches of copies.
  double shadow_cpu_seconds = 0;                        // CPU time of their thread.
  uint64_t slow_seen = 0;
  uint64_t slow_dropped = 0;
  std::vector<NamedHistogram> histograms;

  uint64_t Count(Outcome outcome) const {
    const auto place = static_cast<size_t>(outcome);
    return interactive_calls[place] + background_calls[place];
  }
};

// Thread-safe.
class Telemetry {
 public:
  explicit Telemetry(const TelemetryOptions& options);

  // CountEnd() must follow, once, before the answer is sent.
  void CountArrival() { Count(arrived_); }
  void CountEnd(const EndedCall& call);

  // CountStreamEnd() must follow, once.
  void CountStreamStart() { Count(open_streams_); }
  void CountStreamEnd() { open_streams_.fetch_sub(1, std::memory_order_relaxed); }

  void CountAdmitted(uint64_t examples, uint64_t ids);

  // Not called for copies.
  void CountQueued(Clock::duration waited) { queue_seconds_.Add(Nanoseconds(waited)); }

  void CountBatch(const RanBatch& batch);
  // A failed batch adds only to the number of batches.
  void CountFailedBatch() { Count(batches_); }

  void CountReruns(uint64_t runs) { Count(reruns_, runs); }

  // REQUIRES: sparse_input < TelemetryOptions::sparse_inputs.
  void CountUnknownIds(size_t sparse_input, uint64_t count) {
    Count(unknown_ids_[sparse_input], count);
  }

  // Count a request that was copied to this version, the shadow of another, or that was not.
  void CountShadowSent() { Count(shadow_sent_); }
  void CountShadowDropped(ShadowDrop why) { Count(shadow_dropped_[static_cast<size_t>(why)]); }
  // Counts a batch of copies, with its time and the CPU time of its thread.
  void CountShadowBatch(Clock::duration took, double cpu_seconds);
  // Counts a copy that this version did not answer.
  void CountShadowFailed() { Count(shadow_failed_); }
  // Counts an answered copy, with the largest difference of its scores from the client's.
  void CountShadowCompared(double difference);

  SlowLog& slow_log() { return slow_log_; }

  TelemetrySnapshot Read() const;

 private:
  using Counter = std::atomic<uint64_t>;

  static void Count(Counter& counter, uint64_t count = 1) {
    counter.fetch_add(count, std::memory_order_relaxed);
  }
  static uint64_t Nanoseconds(Clock::duration duration);

  const double start_unix_seconds_;
  SlowLog slow_log_;

  Counter arrived_ = 0;
  Counter open_streams_ = 0;
  std::array<Counter, kOutcomes> ended_interactive_{};
  std::array<Counter, kOutcomes> ended_background_{};
  Counter examples_ = 0;
  Counter last_ok_unix_ms_ = 0;
  Counter batches_ = 0;
  Counter reruns_ = 0;
  Counter compute_us_ = 0;
  Counter bytes_received_ = 0;
  Counter bytes_sent_ = 0;
  std::vector<Counter> unknown_ids_;
  Counter shadow_sent_ = 0;
  std::array<Counter, kShadowDrops> shadow_dropped_{};
  Counter shadow_failed_ = 0;
  Counter shadow_batch_ns_ = 0;
  Counter shadow_cpu_ns_ = 0;

  BucketedHistogram request_seconds_ = BucketedHistogram::OfSeconds();
  BucketedHistogram queue_seconds_ = BucketedHistogram::OfSeconds();
  BucketedHistogram lookup_seconds_ = BucketedHistogram::OfSeconds();
  BucketedHistogram dense_seconds_ = BucketedHistogram::OfSeconds();
  BucketedHistogram batch_examples_ = BucketedHistogram::OfCounts(16);
  BucketedHistogram batch_requests_ = BucketedHistogram::OfCounts(12);
  const uint64_t full_batch_examples_;
  BucketedHistogram batch_fill_;
  BucketedHistogram request_ids_ = BucketedHistogram::OfCounts(20);
  BucketedHistogram request_examples_ = BucketedHistogram::OfCounts(16);
  BucketedHistogram shadow_difference_ = BucketedHistogram::OfDifferences();
};

}  // namespace embershard
