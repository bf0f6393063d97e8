// Paces a load, counts its progress and stops it.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/background.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace embershard {

// What a load is answered that was stopped.
Status LoadingStopped();

// When what comes next may be read: the rule, without a clock of its own. For one thread.
class Pace {
 public:
  // 0: at once.
  explicit Pace(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // The moment before which nothing more is to be read, once `bytes` were, as of `now`. Time in
  // which nothing was read is not made up for.
  Clock::time_point After(size_t bytes, Clock::time_point now);

 private:
  const double bytes_per_second_;
  Clock::time_point next_;
};

// Thread-safe.
class ReadControl {
 public:
  // 0: files are read as fast as they can be.
  explicit ReadControl(double bytes_per_second) : pace_(bytes_per_second) {}

  // `bytes` were read: waits until more may be. kUnavailable once stopped.
  Status Spend(size_t bytes);

  // Counts a step that reads no file, such as a batch of samples. kUnavailable once stopped.
  Status Advance();

  // How many steps were counted. A load that makes progress counts more of them.
  uint64_t steps() const { return steps_; }

  // Ends every wait, now and later.
  void Stop();

 private:
  std::atomic<uint64_t> steps_ = 0;
  Pace pace_ GUARDED_BY(mutex_);
  Mutex mutex_;
  CondVar changed_;  // Signalled when stopped_ changes.
  bool stopped_ GUARDED_BY(mutex_) = false;
};

// The thread and the pace of one load. Owns nothing; both outlive the load.
struct LoadContext {
  // Reads and computes with idle scheduling priority. Null: on the calling thread.
  Background* background = nullptr;

  // Paces reads, counts progress, stops the load. Null: nobody does.
  ReadControl* control = nullptr;
};

}  // namespace embershard
