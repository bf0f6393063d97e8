#include "registry/load_runner.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <sstream>
#include <system_error>

namespace embershard {
namespace {

constexpr std::chrono::milliseconds kProgressPollPeriod{100};

constexpr std::chrono::seconds kStopMax{1};

Status Exhausted(const std::string& what) {
  return {StatusCode::kResourceExhausted, "loading: " + what};
}

}  // namespace

struct LoadRunner::Job {
  Job(const LoadTask& task, Work work_to_do, Background* background)
      : control(task.in_background ? task.bytes_per_second : 0),
        work(std::move(work_to_do)),
        context({.background = task.in_background ? background : nullptr, .control = &control}) {}

  ReadControl control;
  Work work;
  const LoadContext context;
  bool done = false;  // Guarded by the worker's mutex.
};

// Owned by its thread and the runner; only by its thread after the runner abandoned it.
struct LoadRunner::Worker {
  void Loop() {
    thread_id = gettid();
    MutexLock lock(mutex);
    while (true) {
      while (job == nullptr && !leaving) changed.Wait(mutex);
      if (job == nullptr) return;
      const std::shared_ptr<Job> now = job;
      lock.Unlock();
      now->work(now->context);
      now->work = nullptr;  // Destroyed before `done` is set.
      lock.Lock();
      now->done = true;
      job = nullptr;
      changed.NotifyAll();
    }
  }

  Background background;
  std::atomic<pid_t> thread_id = 0;

  Mutex mutex;
  CondVar changed;                             // Signalled when the fields below change.
  std::shared_ptr<Job> job GUARDED_BY(mutex);  // Null if there is nothing to do.
  bool leaving GUARDED_BY(mutex) = false;
};

LoadRunner::~LoadRunner() {
  if (worker_ == nullptr) return;
  {
    const MutexLock lock(worker_->mutex);
    worker_->leaving = true;
  }
  worker_->changed.NotifyAll();
  thread_.join();
}

Status LoadRunner::StatusOfException() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Exhausted("out of memory");
  } catch (const std::system_error& error) {
    return Exhausted(std::string("the system has no more threads or memory: ") + error.what());
  } catch (const std::exception& error) {
    return Internal(error.what());
  } catch (...) {
    return Internal("loading: an exception that is no std::exception");
  }
}

void LoadRunner::Stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  if (current_ != nullptr) current_->control.Stop();
}

size_t LoadRunner::hung() const {
  const MutexLock lock(mutex_);
  return static_cast<size_t>(
      std::ranges::count_if(hung_, [](const Hung& hung) { return !hung.worker.expired(); }));
}

bool LoadRunner::is_stopped() const {
  const MutexLock lock(mutex_);
  return stopped_;
}

Status LoadRunner::Refusal(const LoadTask& task) {
  const MutexLock lock(mutex_);
  if (stopped_) return LoadingStopped();
  std::erase_if(hung_, [](const Hung& hung) { return hung.worker.expired(); });
  std::string names;
  for (const Hung& hung : hung_) {
    if (hung.name == task.name) {
      return Exhausted(
          "expected an earlier load of it, which was given up, to end first; it hangs");
    }
    names += (names.empty() ? "" : ", ") + hung.name;
  }
  if (hung_.size() < hung_max_) return {};
  return Exhausted("expected fewer than " + std::to_string(hung_max_) +
                   " loads that were given up and still hang, got " + std::to_string(hung_.size()) +
                   " (" + names + "); restart the server to load more");
}

Status LoadRunner::StartWorker() {
  if (worker_ != nullptr) return {};
  try {
    auto worker = std::make_shared<Worker>();
    thread_ = std::thread([worker] { worker->Loop(); });
    worker_ = std::move(worker);
    return {};
  } catch (...) {
    return StatusOfException();
  }
}

Status LoadRunner::RunWork(const LoadTask& task, Work work) {
  RETURN_IF_ERROR(Refusal(task));
  RETURN_IF_ERROR(StartWorker());
  const auto job = std::make_shared<Job>(task, std::move(work), &worker_->background);
  {
    const MutexLock lock(mutex_);
    if (stopped_) return LoadingStopped();
    current_ = job;
  }
  Status status = Wait(task, job);
  const MutexLock lock(mutex_);
  current_ = nullptr;
  return stopped_ ? LoadingStopped() : status;
}

Status LoadRunner::Wait(const LoadTask& task, const std::shared_ptr<Job>& job) {
  const std::shared_ptr<Worker> worker = worker_;
  const MutexLock lock(worker->mutex);
  worker->job = job;
  worker->changed.NotifyAll();
  uint64_t steps = 0;
  Clock::time_point advanced = options_.now();
  std::optional<Clock::time_point> stopped;
  while (!job->done) {
    const Clock::time_point look = Clock::now() + kProgressPollPeriod;
    while (!job->done && worker->changed.WaitUntil(worker->mutex, look)) continue;
    if (job->done) break;
    const Clock::time_point now = options_.now();
    if (const uint64_t counted = job->control.steps(); counted != steps) {
      steps = counted;
      advanced = now;
    }
    if (!stopped && is_stopped()) stopped = Clock::now();
    const bool stuck = options_.timeout.count() > 0 && now - advanced >= options_.timeout;
    const bool hangs = stopped && Clock::now() - *stopped >= kStopMax;
    if (!stuck && !hangs) continue;
    job->control.Stop();
    worker->leaving = true;
    LeaveBehind(task.name);
    return GivenUp();
  }
  return {};
}

void LoadRunner::LeaveBehind(const std::string& name) {
  if (worker_->thread_id != 0) (void)SetIdlePriority(worker_->thread_id);
  thread_.detach();
  const MutexLock lock(mutex_);
  hung_.push_back({.name = name, .worker = worker_});
  worker_ = nullptr;
}

Status LoadRunner::GivenUp() const {
  std::ostringstream seconds;
  seconds << std::chrono::duration<double>(options_.timeout).count();
  return {StatusCode::kDeadlineExceeded,
          "loading: expected progress (bytes read, samples run) within " + seconds.str() +
              " s (--load-timeout-seconds), got none; its thread is left behind until it ends"};
}

}  // namespace embershard
