// Holds back a reader of large files, so that those who are served meanwhile do not notice.

#ifndef EMBERSHARD_BASE_READ_CONTROL_H_
#define EMBERSHARD_BASE_READ_CONTROL_H_

#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"

namespace embershard {

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

// One thread reads; any thread may stop it.
class ReadControl {
 public:
  explicit ReadControl(double bytes_per_second) : pace_(bytes_per_second) {}

  // `bytes` were read: waits until more may be. kUnavailable once stopped.
  Status Spend(size_t bytes);

  // Ends every wait, now and later.
  void Stop();

 private:
  Pace pace_;
  std::mutex mutex_;
  std::condition_variable changed_;  // Signalled when stopped_ changes.
  bool stopped_ = false;             // Guarded by mutex_.
};

}  // namespace embershard

#endif  // EMBERSHARD_BASE_READ_CONTROL_H_
