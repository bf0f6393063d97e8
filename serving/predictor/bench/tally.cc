#include "bench/tally.h"

#include <algorithm>
#include <chrono>

namespace embershard::bench {
namespace {

constexpr size_t kUnknownCode = 2;
constexpr size_t kResourceExhausted = 8;
constexpr size_t kMessageBytes = 300;

int64_t Nanoseconds(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

void Tally::Add(const Outcome& outcome, const std::string& message) {
  if (!Counts(outcome.scheduled)) return;
  ++requests;
  lag.Add(Nanoseconds(outcome.sent - outcome.scheduled));
  last_scheduled = std::max(last_scheduled, outcome.scheduled - counted_from);
  // Another server may answer with a number that gRPC does not name.
  const bool known = outcome.code >= 0 && outcome.code < static_cast<int>(kCodes);
  const size_t code = known ? static_cast<size_t>(outcome.code) : kUnknownCode;
  ++by_code[code];
  if (code == kResourceExhausted) refusal.Add(Nanoseconds(outcome.answered - outcome.sent));
  if (code == 0) {
    latency.Add(Nanoseconds(outcome.answered - outcome.scheduled));
    last_ok = std::max(last_ok, outcome.answered - counted_from);
    examples_ok += outcome.examples;
    answer_bytes += outcome.answer_bytes;
  } else if (messages[code].empty()) {
    messages[code] = message.substr(0, kMessageBytes);
  }
}

void Tally::Merge(const Tally& other) {
  requests += other.requests;
  examples_ok += other.examples_ok;
  answer_bytes += other.answer_bytes;
  for (size_t code = 0; code < kCodes; ++code) {
    by_code[code] += other.by_code[code];
    if (messages[code].empty()) messages[code] = other.messages[code];
  }
  latency.Merge(other.latency);
  refusal.Merge(other.refusal);
  lag.Merge(other.lag);
  last_scheduled = std::max(last_scheduled, other.last_scheduled);
  last_ok = std::max(last_ok, other.last_ok);
}

}  // namespace embershard::bench
