// The threads that run batches, of one queue or of several.

#ifndef EMBERSHARD_BATCHING_SLOT_THREADS_H_
#define EMBERSHARD_BATCHING_SLOT_THREADS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "batching/sleepers.h"

namespace embershard {

// What they work for.
class SlotWork {
 public:
  virtual ~SlotWork() = default;

  // Runs a batch, if one can be run now; whether it did. `lock` holds the threads' mutex, also
  // behind it, and not meanwhile. Where it did the work may be gone.
  virtual bool RunIfAny(std::unique_lock<std::mutex>* lock) = 0;
};

// All work is guarded by one mutex, and has its turn in turn. Versions of a model that follow each
// other share these, so that the threads go on where a version is swapped in: for some 50 ms the
// system takes a thread that is new, or has waited for long, for one with little to do, and wakes
// others on its processor while another one is idle.
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
  // The same for work of others, where there are any: for the thread that is about to run a batch
  // of the only one it has asked. REQUIRES: the mutex is held.
  void WakeForOthers() {
    if (work_.size() > 1) sleepers_.WakeOne();
  }

 private:
  // Longer than what others have by default, 1.4 to 2.8 ms, so that who reads a request or sends an
  // answer need not wait for one that runs a batch; and no longer, for so long these threads wait
  // for each other, and for those of other versions.
  static constexpr std::chrono::milliseconds kTurn{5};

  void Stop();
  void Loop(size_t thread);
  // Whether there was any. REQUIRES: `lock` holds the mutex, also behind it.
  bool RunNext(std::unique_lock<std::mutex>* lock);

  std::mutex mutex_;
  Sleepers sleepers_;            // Guarded by mutex_.
  std::vector<SlotWork*> work_;  // Guarded by mutex_.
  size_t turn_ = 0;              // Guarded by mutex_. Who is asked first next, of work_.
  bool stopping_ = false;        // Guarded by mutex_.

  std::vector<std::thread> threads_;  // Last, so that Loop() sees every field built.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_SLOT_THREADS_H_
