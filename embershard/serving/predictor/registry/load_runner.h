// Runs loads on a separate thread, and abandons the thread if a load makes no progress.

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
  // A load is abandoned after this long without a step (see ReadControl). 0: never.
  Clock::duration timeout{0};

  // Replaced in tests.
  std::function<Clock::time_point()> now = Clock::now;
};

struct LoadTask {
  std::string name;             // Name of what is loaded, for messages.
  bool in_background = false;   // Runs with idle scheduling priority, at the rate below.
  double bytes_per_second = 0;  // 0: as fast as files can be read.
};

// An abandoned load keeps its thread and memory until it ends; its result is then destroyed. Not
// thread-safe, except Stop() and hung().
class LoadRunner {
 public:
  // `hung_max`: most abandoned loads that have not ended. Beyond it loads are refused.
  LoadRunner(LoadRunnerOptions options, size_t hung_max)
      : options_(std::move(options)), hung_max_(hung_max) {}
  LoadRunner(const LoadRunner&) = delete;
  LoadRunner& operator=(const LoadRunner&) = delete;
  ~LoadRunner();

  // Returns the result of `work`, or a Status if it throws. kDeadlineExceeded: abandoned.
  // kResourceExhausted: too many loads hang, or an earlier one of this name does. kUnavailable:
  // Stop() was called; this then returns within about a second, whatever the load does. REQUIRES:
  // `work` owns everything it uses.
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

  // Abandons the running load and refuses further ones. Thread-safe.
  void Stop();

  // Abandoned loads that have not ended. Thread-safe.
  size_t hung() const;

 private:
  using Work = std::function<void(const LoadContext&)>;
  struct Job;
  struct Worker;
  struct Hung {
    std::string name;
    std::weak_ptr<Worker> worker;  // Expires with its thread.
  };

  static Status StatusOfException();

  Status RunWork(const LoadTask& task, Work work);
  Status Refusal(const LoadTask& task);
  Status StartWorker();
  Status Wait(const LoadTask& task, const std::shared_ptr<Job>& job);
  void LeaveBehind(const std::string& name);
  Status GivenUp() const;
  bool is_stopped() const;

  const LoadRunnerOptions options_;
  const size_t hung_max_;
  std::shared_ptr<Worker> worker_;  // Null before the first load, and after one was abandoned.
  std::thread thread_;              // The thread of worker_.

  mutable Mutex mutex_;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::shared_ptr<Job> current_ GUARDED_BY(mutex_);  // Null if nothing runs.
  std::vector<Hung> hung_ GUARDED_BY(mutex_);
};

}  // namespace embershard
