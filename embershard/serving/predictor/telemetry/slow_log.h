// The calls that took long, until somebody writes them down.

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
  std::string message;  // Of the status; empty if OK.
  uint32_t examples = 0;
  uint64_t ids = 0;
  uint64_t bytes = 0;       // Of the request's message.
  std::string peer;         // As gRPC says it.
  std::string traceparent;  // As the client says it, printable ASCII.
  std::string request_id;   // As the client says it, cut.
  uint32_t queue_us = 0;
  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
  uint32_t total_us = 0;
};

// Thread-safe. Takes memory and locks for slow calls only.
class SlowLog {
 public:
  // Requests that are not taken yet. Further ones are counted, and not kept.
  static constexpr size_t kCapacity = 256;

  // A call that takes `threshold` or longer is slow. 0: none is.
  explicit SlowLog(Clock::duration threshold) : threshold_(threshold) {}

  // Keeps `describe()`, a SlowRequest, of a call that took `total`, if that is slow. Never throws:
  // what cannot be described is counted as dropped.
  template <class Describe>
  void Offer(Clock::duration total, Describe describe) {
    if (!slow(total)) return;
    seen_.fetch_add(1, std::memory_order_relaxed);
    try {
      if (HasRoom() && Add(describe())) return;
    } catch (const std::exception&) {  // Memory has run out.
    }
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }

  // Removes and returns what is there, oldest first; waits up to `timeout` for a first one,
  // but not once closed.
  std::vector<SlowRequest> Wait(Clock::duration timeout) {
    const Clock::time_point deadline = Clock::now() + timeout;
    const MutexLock lock(mutex_);
    while (!closed_ && waiting_.empty() && changed_.WaitUntil(mutex_, deadline)) continue;
    return std::exchange(waiting_, {});
  }

  // Ends every Wait(), now and later.
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

  // False, and nothing kept, where there is no room.
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
