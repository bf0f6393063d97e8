// What the server counts about its calls and batches: a few relaxed additions a request, no
// lock and no memory taken.
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
  size_t sparse_inputs = 0;          // Of the schema.
  uint64_t full_batch_examples = 1;  // At least 1: from here on a batch counts as full.
  Clock::duration slow_request{0};   // From here on a call is slow. 0: none is.
};

// One call, at its end.
struct EndedCall {
  Outcome outcome = Outcome::kOk;
  bool is_background = false;  // Of the priority `background`, else `interactive`.
  Clock::duration total{0};    // From arrival to answer.
  uint32_t examples = 0;
  uint64_t bytes_received = 0;
  uint64_t bytes_sent = 0;
};

// Why a sampled request is not copied to the shadow version.
enum class ShadowDrop {
  kSchema,          // Its inputs or outputs are not the same.
  kCopiesUnderWay,  // As many copies wait or run as may.
  kBytesUnderWay,   // These hold as many bytes as they may.
};
inline constexpr size_t kShadowDrops = 3;

// Its name in metrics.
const char* NameOf(ShadowDrop drop);

// One batch that the model ran.
struct RanBatch {
  uint64_t requests = 0;
  uint64_t answered = 0;  // Of the requests: those that got finite outputs.
  uint64_t examples = 0;
  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
};

struct NamedHistogram {
  const char* name = "";
  HistogramSnapshot values;
};

// All since the start. A request that has been answered before is in all of it.
struct TelemetrySnapshot {
  double start_unix_seconds = 0;
  // That have ended, by outcome.
  std::array<uint64_t, kOutcomes> interactive_calls{};
  std::array<uint64_t, kOutcomes> background_calls{};  // Of the priority `background`.
  uint64_t in_flight = 0;                              // That have arrived and not ended.
  uint64_t open_streams = 0;
  uint64_t examples = 0;              // Of OK calls.
  uint64_t last_ok_unix_ms = 0;       // When the last of them ended. 0: there was none.
  uint64_t batches = 0;               // Those that failed, too.
  uint64_t reruns = 0;                // Of parts of those for which the model failed.
  double compute_seconds = 0;         // Of each answer's batch: one of ten counts ten times.
  std::vector<uint64_t> unknown_ids;  // One for each sparse input.
  uint64_t bytes_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t shadow_sent = 0;                             // Copies of requests to another version.
  std::array<uint64_t, kShadowDrops> shadow_dropped{};  // Not copied, by reason.
  uint64_t shadow_failed = 0;                           // Of those sent: not answered.
  double shadow_batch_seconds = 0;  // For which batches of copies were under way.
  double shadow_cpu_seconds = 0;    // That their thread had a processor meanwhile.
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

  // A call has arrived. CountEnd() must follow, once, before its client can know.
  void CountArrival() { Count(arrived_); }
  void CountEnd(const EndedCall& call);

  // A stream was opened. CountStreamEnd() must follow, once.
  void CountStreamStart() { Count(open_streams_); }
  void CountStreamEnd() { open_streams_.fetch_sub(1, std::memory_order_relaxed); }

  // A request is valid.
  void CountAdmitted(uint64_t examples, uint64_t ids);

  // A request, which is no copy for a shadow, waited so long for the batch that ran it.
  void CountQueued(Clock::duration waited) { queue_seconds_.Add(Nanoseconds(waited)); }

  // A batch ran. Of one that failed nothing is known but that it was there.
  void CountBatch(const RanBatch& batch);
  void CountFailedBatch() { Count(batches_); }

  // Parts of a batch that failed were run again, so often.
  void CountReruns(uint64_t runs) { Count(reruns_, runs); }

  // REQUIRES: sparse_input < TelemetryOptions::sparse_inputs.
  void CountUnknownIds(size_t sparse_input, uint64_t count) {
    Count(unknown_ids_[sparse_input], count);
  }

  // An answered request was copied to this version, which is the shadow of another; one was not.
  void CountShadowSent() { Count(shadow_sent_); }
  void CountShadowDropped(ShadowDrop why) { Count(shadow_dropped_[static_cast<size_t>(why)]); }
  // A batch of copies took so long, of which its thread had a processor for `cpu_seconds`.
  void CountShadowBatch(Clock::duration took, double cpu_seconds);
  // This version did not answer a copy.
  void CountShadowFailed() { Count(shadow_failed_); }
  // It did, and its scores lay as far from those that were given, at most.
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
