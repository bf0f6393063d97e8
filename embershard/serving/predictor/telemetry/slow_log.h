#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "telemetry/outcome.h"

namespace embershard {

struct SlowRequest {
  double unix_seconds = 0;  // When it ended.
  Outcome outcome = Outcome::kOk;
  std::string message;  // The status message; empty if OK.
  uint32_t examples = 0;
  uint64_t ids = 0;
  uint64_t bytes = 0;       // Size of the request's message.
  std::string peer;         // The peer in gRPC's form.
  std::string traceparent;  // The client's header, printable ASCII.
  std::string request_id;   // The client's id, truncated.
  uint32_t queue_us = 0;
  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
  uint32_t total_us = 0;
};

// Thread-safe. Allocates and locks only for slow calls.
class SlowLog {
 public:
  // Most entries kept. Further ones are only counted.
  static constexpr size_t kCapacity = 256;

  // Calls that take at least `threshold` are slow. 0: none.
  explicit SlowLog(Clock::duration threshold) : threshold_(threshold) {}

  // Adds `describe()`, a SlowRequest, if `total` is slow. Never throws: if describe() does, the
  // call counts as dropped.
  template <class Describe>
  void Offer(Clock::duration total, Describe describe) {
    if (!slow(total)) return;
    seen_.fetch_add(1, std::memory_order_relaxed);
    try {
      if (HasRoom() && Add(describe())) return;
    } catch (const std::exception&) {  // Out of memory.
    }
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }

  // Removes all entries, oldest first. Waits up to `timeout` for the first one, unless closed.
  std::vector<SlowRequest> Wait(Clock::duration timeout) {
    const Clock::time_point deadline = Clock::now() + timeout;
    const MutexLock lock(mutex_);
    while (!closed_ && waiting_.empty() && changed_.WaitUntil(mutex_, deadline)) continue;
    return std::exchange(waiting_, {});
  }

  // Makes current and later Wait() calls return at once.
  void Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }

  uint64_t seen() const { return seen_.load(std::memory_order_relaxed); }
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  bool slow(Clock::duration total) const {
    return threshold_ > Clock::duration::zero() && total >= threshold_;
  }
  bool HasRoom() {
    const MutexLock lock(mutex_);
    return waiting_.size() < kCapacity;
  }

  bool Add(SlowRequest request) {
    const MutexLock lock(mutex_);
    if (waiting_.size() == kCapacity) return false;
    waiting_.push_back(std::move(request));
    changed_.NotifyOne();
    return true;
  }

  const Clock::duration threshold_;
  std::atomic<uint64_t> seen_ = 0;
  std::atomic<uint64_t> dropped_ = 0;

  Mutex mutex_;
  CondVar changed_;                                      // Signalled when the fields below change.
  std::vector<SlowRequest> waiting_ GUARDED_BY(mutex_);  // Oldest first, never above kCapacity.
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace embershard
