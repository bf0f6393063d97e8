// Runs loads on a thread of its own, and leaves the thread behind if a load makes no progress.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/read_control.h"
#include "base/status.h"

namespace embershard {

struct LoadRunnerOptions {
  // A load is given up after this long without a step (see ReadControl). 0: never.
  Clock::duration timeout{0};

  // Tests have a clock of their own.
  std::function<Clock::time_point()> now = Clock::now;
};

struct LoadTask {
  std::string name;             // Of what is loaded; for messages.
  bool in_background = false;   // With idle scheduling priority, at the pace below.
  double bytes_per_second = 0;  // 0: as fast as files can be read.
};

// A load that was given up keeps its thread and its memory until it ends. Its result is destroyed
// then. Not thread-safe, but for Stop() and hung().
class LoadRunner {
 public:
  // `hung_max`: most loads that were given up and have not ended. One more load is refused.
  LoadRunner(LoadRunnerOptions options, size_t hung_max)
      : options_(std::move(options)), hung_max_(hung_max) {}
  LoadRunner(const LoadRunner&) = delete;
  LoadRunner& operator=(const LoadRunner&) = delete;
  ~LoadRunner();

  // What `work` gives; a Status if it throws. kDeadlineExceeded: given up. kResourceExhausted: too
  // many loads hang, or an earlier one of that name does. kUnavailable: stopped; returns then
  // within about a second, whatever the load does. REQUIRES: `work` owns whatever it uses.
  template <class T>
  Result<T> Run(const LoadTask& task, std::function<Result<T>(const LoadContext&)> work) {
    const auto result = std::make_shared<std::optional<Result<T>>>();
    Status status = RunWork(task, [result, work = std::move(work)](const LoadContext& context) {
      try {
        result->emplace(work(context));
      } catch (...) {
        result->emplace(StatusOfException());
      }
    });
    if (!status.ok()) return status;
    return std::move(**result);
  }

  // Ends what runs, and refuses what comes. Any thread.
  void Stop();

  // Loads that were given up and have not ended. Any thread.
  size_t hung() const;

 private:
  using Work = std::function<void(const LoadContext&)>;
  struct Job;
  struct Worker;
  struct Hung {
    std::string name;
    std::weak_ptr<Worker> worker;  // Expires with its thread.
  };

  // The status of the exception that is being handled.
  static Status StatusOfException();

  Status RunWork(const LoadTask& task, Work work);
  // Why `task` is not begun, if it is not.
  Status Refusal(const LoadTask& task);
  Status StartWorker();
  // Until the job has ended, or is left behind.
  Status Wait(const LoadTask& task, const std::shared_ptr<Job>& job);
  void LeaveBehind(const std::string& name);
  Status GivenUp() const;
  bool is_stopped() const;

  const LoadRunnerOptions options_;
  const size_t hung_max_;
  std::shared_ptr<Worker> worker_;  // Null: none was needed yet, or it was left behind.
  std::thread thread_;              // Of worker_.

  mutable Mutex mutex_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::shared_ptr<Job> current_ GUARDED_BY(mutex_);  // Null: nothing runs.
  std::vector<Hung> hung_ GUARDED_BY(mutex_);
};

}  // namespace embershard
