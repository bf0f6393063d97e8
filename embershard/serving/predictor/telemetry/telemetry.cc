#include "telemetry/telemetry.h"

#include <algorithm>

#include "base/clock.h"

namespace embershard {
namespace {

uint64_t Value(const std::atomic<uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

const char* NameOf(ShadowDrop drop) {
  constexpr std::array<const char*, kShadowDrops> kNames = {"schema", "copies_under_way",
                                                            "bytes_under_way"};
  return kNames[static_cast<size_t>(drop)];
}

Telemetry::Telemetry(const TelemetryOptions& options)
    : start_unix_seconds_(UnixSeconds()),
      slow_log_(options.slow_request),
      unknown_ids_(options.sparse_inputs),
      full_batch_examples_(options.full_batch_examples),
      batch_fill_(BucketedHistogram::OfPercent(options.full_batch_examples)) {}

void Telemetry::CountEnd(const EndedCall& call) {
  Count(bytes_received_, call.bytes_received);
  if (call.outcome == Outcome::kOk) {
    Count(bytes_sent_, call.bytes_sent);
    Count(examples_, call.examples);
    last_ok_unix_ms_.store(static_cast<uint64_t>(1000 * UnixSeconds()), std::memory_order_relaxed);
    request_seconds_.Add(Nanoseconds(call.total));
  }
  // Last, so that a reader that sees this call's end sees its other counts, too.
  auto& ended = call.is_background ? ended_background_ : ended_interactive_;
  ended[static_cast<size_t>(call.outcome)].fetch_add(1, std::memory_order_release);
}

void Telemetry::CountAdmitted(uint64_t examples, uint64_t ids) {
  request_examples_.Add(examples);
  request_ids_.Add(ids);
}

void Telemetry::CountShadowCompared(double difference) {
  shadow_difference_.Add(BucketedHistogram::Difference(difference));
}

void Telemetry::CountShadowBatch(Clock::duration took, double cpu_seconds) {
  Count(shadow_batch_ns_, Nanoseconds(took));
  Count(shadow_cpu_ns_, static_cast<uint64_t>(1e9 * std::max(0.0, cpu_seconds)));
}

void Telemetry::CountBatch(const RanBatch& batch) {
  Count(batches_);
  Count(compute_us_, batch.answered * (uint64_t{batch.lookup_us} + batch.dense_us));
  batch_requests_.Add(batch.requests);
  batch_examples_.Add(batch.examples);
  batch_fill_.Add(100 * std::min(batch.examples, full_batch_examples_));
  lookup_seconds_.Add(uint64_t{1000} * batch.lookup_us);
  dense_seconds_.Add(uint64_t{1000} * batch.dense_us);
}

uint64_t Telemetry::Nanoseconds(Clock::duration duration) {
  const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  return static_cast<uint64_t>(std::max<int64_t>(count, 0));
}

TelemetrySnapshot Telemetry::Read() const {
  TelemetrySnapshot read;
  read.start_unix_seconds = start_unix_seconds_;
  uint64_t ended = 0;
  for (size_t i = 0; i < kOutcomes; ++i) {
    read.interactive_calls[i] = ended_interactive_[i].load(std::memory_order_acquire);
    read.background_calls[i] = ended_background_[i].load(std::memory_order_acquire);
    ended += read.interactive_calls[i] + read.background_calls[i];
  }
  read.in_flight = Value(arrived_) - ended;  // Read after `ended`, so it cannot be negative.
  read.open_streams = Value(open_streams_);
  read.examples = Value(examples_);
  read.last_ok_unix_ms = Value(last_ok_unix_ms_);
  read.batches = Value(batches_);
  read.reruns = Value(reruns_);
  read.compute_seconds = static_cast<double>(Value(compute_us_)) / 1e6;
  for (const Counter& count : unknown_ids_) read.unknown_ids.push_back(Value(count));
  read.bytes_received = Value(bytes_received_);
  read.bytes_sent = Value(bytes_sent_);
  read.shadow_sent = Value(shadow_sent_);
  for (size_t i = 0; i < kShadowDrops; ++i) read.shadow_dropped[i] = Value(shadow_dropped_[i]);
  read.shadow_failed = Value(shadow_failed_);
  read.shadow_batch_seconds = static_cast<double>(Value(shadow_batch_ns_)) / 1e9;
  read.shadow_cpu_seconds = static_cast<double>(Value(shadow_cpu_ns_)) / 1e9;
  read.slow_seen = slow_log_.seen();
  read.slow_dropped = slow_log_.dropped();
  read.histograms = {{"request_seconds", request_seconds_.Read()},
                     {"queue_seconds", queue_seconds_.Read()},
                     {"lookup_seconds", lookup_seconds_.Read()},
                     {"dense_seconds", dense_seconds_.Read()},
                     {"batch_examples", batch_examples_.Read()},
                     {"batch_requests", batch_requests_.Read()},
                     {"batch_fill", batch_fill_.Read()},
                     {"request_ids", request_ids_.Read()},
                     {"request_examples", request_examples_.Read()},
                     {"shadow_difference", shadow_difference_.Read()}};
  return read;
}

}  // namespace embershard
