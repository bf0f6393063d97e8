// std::mutex and std::condition_variable with annotations for clang's -Wthread-safety: fields name
// the mutex that guards them, functions the mutex that their caller must hold.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define EMBERSHARD_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define EMBERSHARD_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(name) EMBERSHARD_THREAD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY EMBERSHARD_THREAD_ANNOTATION(scoped_lockable)
#ifndef GUARDED_BY  // Abseil, which gRPC includes, defines it alike.
#define GUARDED_BY(mutex) EMBERSHARD_THREAD_ANNOTATION(guarded_by(mutex))
#endif
#define REQUIRES(...) EMBERSHARD_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) EMBERSHARD_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) EMBERSHARD_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) EMBERSHARD_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(mutex) EMBERSHARD_THREAD_ANNOTATION(assert_capability(mutex))
#define RETURN_CAPABILITY(mutex) EMBERSHARD_THREAD_ANNOTATION(lock_returned(mutex))

namespace embershard {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }

  // Tells the analysis that the caller holds this mutex. Has no effect at run time.
  void AssertHeld() const ASSERT_CAPABILITY(this) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex until destroyed, except between Unlock() and Lock().
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() RELEASE() {
    if (held_) mutex_.Unlock();
  }

  void Unlock() RELEASE() {
    mutex_.Unlock();
    held_ = false;
  }
  void Lock() ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// A condition variable. Waits release the mutex and may wake spuriously, so callers wait in a loop.
// There are no predicates, because the analysis cannot see which mutex a lambda's caller holds.
class CondVar {
 public:
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    Adopted lock(mutex);
    changed_.wait(lock.lock);
  }

  // Returns false after `deadline`.
  template <class Time>
  bool WaitUntil(Mutex& mutex, const Time& deadline) REQUIRES(mutex) {
    Adopted lock(mutex);
    return changed_.wait_until(lock.lock, deadline) == std::cv_status::no_timeout;
  }

  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  struct Adopted {
    explicit Adopted(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    Adopted(const Adopted&) = delete;
    Adopted& operator=(const Adopted&) = delete;
    ~Adopted() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };

  std::condition_variable changed_;
};

}  // namespace embershard
