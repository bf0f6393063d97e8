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
  ++requests_;
  lag_.Add(Nanoseconds(outcome.sent - outcome.scheduled));
  last_scheduled_ = std::max(last_scheduled_, outcome.scheduled - counted_from_);
  // Another server may answer with a number that gRPC does not name.
  const bool known = outcome.code >= 0 && outcome.code < static_cast<int>(kCodes);
  const size_t code = known ? static_cast<size_t>(outcome.code) : kUnknownCode;
  ++by_code_[code];
  if (code == kResourceExhausted) refusal_.Add(Nanoseconds(outcome.answered - outcome.sent));
  if (code == 0) {
    latency_.Add(Nanoseconds(outcome.answered - outcome.scheduled));
    last_ok_ = std::max(last_ok_, outcome.answered - counted_from_);
    examples_ok_ += outcome.examples;
    answer_bytes_ += outcome.answer_bytes;
  } else if (messages_[code].empty()) {
    messages_[code] = message.substr(0, kMessageBytes);
  }
}

void Tally::Merge(const Tally& other) {
  requests_ += other.requests_;
  examples_ok_ += other.examples_ok_;
  answer_bytes_ += other.answer_bytes_;
  for (size_t code = 0; code < kCodes; ++code) {
    by_code_[code] += other.by_code_[code];
    if (messages_[code].empty()) messages_[code] = other.messages_[code];
  }
  latency_.Merge(other.latency_);
  refusal_.Merge(other.refusal_);
  lag_.Merge(other.lag_);
  last_scheduled_ = std::max(last_scheduled_, other.last_scheduled_);
  last_ok_ = std::max(last_ok_, other.last_ok_);
}

}  // namespace embershard::bench
