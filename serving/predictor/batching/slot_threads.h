// The threads that run batches, of one queue or of several.

#ifndef EMBERSHARD_BATCHING_SLOT_THREADS_H_
#define EMBERSHARD_BATCHING_SLOT_THREADS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "batching/sleepers.h"

namespace embershard {

// What they work for.
class SlotWork {
 public:
  virtual ~SlotWork() = default;

  // Whether a batch can be run now. REQUIRES: the threads' mutex is held.
  virtual bool CanRun() const = 0;

  // Runs a batch, if one can be run now; whether it did. `lock` holds the threads' mutex, also
  // behind it, and not meanwhile. Where it did the work may be gone.
  virtual bool RunIfAny(std::unique_lock<std::mutex>* lock) = 0;
};

// All work is guarded by one mutex, and has its turn in turn, a batch each. A version shares these
// with the one that leaves for it, so that the threads go on where it is swapped in: for some 50 ms
// the system takes a thread that is new, or has waited for long, for one with little to do, and
// wakes others on its processor while another one is idle. For longer nothing should share them:
// each queue's forecasts take all threads for its own.
class SlotThreads {
 public:
  // `begin`, where there is one, is called on each of the threads, with its number, before that one
  // runs anything.
  explicit SlotThreads(size_t threads, std::function<void(size_t thread)> begin = {});
  SlotThreads(const SlotThreads&) = delete;
  SlotThreads& operator=(const SlotThreads&) = delete;
  ~SlotThreads();  // REQUIRES: all work was taken back. Not on one of the threads.

  std::mutex& mutex() { return mutex_; }
  size_t size() const { return threads_.size(); }

  // From now on they look at `work`; until now. REQUIRES: the mutex is held.
  void Add(SlotWork* work) { work_.push_back(work); }
  void Remove(SlotWork* work) { std::erase(work_, work); }

  // Has a thread that sleeps look for work. Who runs some looks for more by itself. REQUIRES: the
  // mutex is held.
  void WakeOne() { sleepers_.WakeOne(); }
  // The same where others than `own` can run: for the thread that is about to run a batch of `own`,
  // and may have been woken for these, too. REQUIRES: the mutex is held.
  void WakeForOthers(const SlotWork* own);

  // Whether one has been in the same batch for so long. Who follows should not depend on it.
  bool is_stuck(Clock::duration longest) const;

 private:
  // Longer than what others have by default, 1.4 to 2.8 ms, so that who reads a request or sends an
  // answer need not wait for one that runs a batch; and no longer, for so long these threads wait
  // for each other, and for those of other versions.
  static constexpr std::chrono::milliseconds kTurn{5};

  void Stop();
  void Loop(size_t thread);
  // Whether there was any. REQUIRES: `lock` holds the mutex, also behind it.
  bool RunNext(std::unique_lock<std::mutex>* lock);

  mutable std::mutex mutex_;
  Sleepers sleepers_;            // Guarded by mutex_.
  std::vector<SlotWork*> work_;  // Guarded by mutex_.
  size_t turn_ = 0;              // Guarded by mutex_. Who is asked first next, of work_.
  bool stopping_ = false;        // Guarded by mutex_.
  // Guarded by mutex_. When each thread last looked for work and did not sleep; max() asleep.
  std::vector<Clock::time_point> awake_since_;

  std::vector<std::thread> threads_;  // Last, so that Loop() sees every field built.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_SLOT_THREADS_H_
