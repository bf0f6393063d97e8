// Limits the rate of a load, counts its progress, and stops it.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/background.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace embershard {

Status LoadingStopped();

// Computes when the next bytes may be read. No clock. Used by one thread.
class Pace {
 public:
  // 0: no limit.
  explicit Pace(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // Earliest time of the next read after `bytes` were read at `now`. Pauses do not earn credit.
  Clock::time_point After(size_t bytes, Clock::time_point now);

 private:
  const double bytes_per_second_;
  Clock::time_point next_;
};

// Thread-safe.
class ReadControl {
 public:
  // 0: no limit.
  explicit ReadControl(double bytes_per_second) : pace_(bytes_per_second) {}

  // Counts `bytes` as read, and waits until more may be read. kUnavailable after Stop().
  Status Spend(size_t bytes);

  // Counts a step that reads no file, such as a batch of samples. kUnavailable after Stop().
  Status Advance();

  // Steps counted so far; grows as long as the load makes progress.
  uint64_t steps() const { return steps_; }

  void Stop();

 private:
  std::atomic<uint64_t> steps_ = 0;
  Pace pace_ GUARDED_BY(mutex_);
  Mutex mutex_;
  CondVar changed_;  // Signalled when stopped_ changes.
  bool stopped_ GUARDED_BY(mutex_) = false;
};

// The thread and the rate of a load. Owns neither; both outlive the load.
struct LoadContext {
  // Runs the load with idle scheduling priority. Null: it runs on the calling thread.
  Background* background = nullptr;

  // Null: no limit, no progress, no way to stop.
  ReadControl* control = nullptr;
};

}  // namespace embershard
