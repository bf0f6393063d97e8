// Where engines without an owner end.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/background.h"
#include "base/clock.h"
#include "engine/engine.h"

namespace embershard {

// The last owner of an engine may be one of its own threads, with the answer that it
// gives, and an engine that ends waits for its threads. So each engine stops on a thread of its
// own, and gives its memory back in the background; or there, too, where somebody waits for it.
// Thread-safe.
class DeferredDestruction {
 public:
  // Does not own `background`, which must outlive it.
  explicit DeferredDestruction(Background* background);
  DeferredDestruction(const DeferredDestruction&) = delete;
  DeferredDestruction& operator=(const DeferredDestruction&) = delete;
  // Waits until every engine has been let go and has ended: of a request that is answered and still
  // runs, that is when its batch ends.
  ~DeferredDestruction();

  // The engine, which ends here once the last copy of the pointer has gone. `claim` is let go once
  // the engine has given its memory back. May be null.
  std::shared_ptr<Engine> Own(std::unique_ptr<Engine> engine,
                              std::shared_ptr<const void> claim = nullptr);

  // Waits until no more engines live than `most`, or until `deadline`; whether it is so.
  bool WaitForEnds(size_t most, Clock::time_point deadline);

  // What the engines counted that have ended. A sum of this and what is served counts each
  // engine once, at some time between its last copy's end and its own.
  uint64_t answered() const;

 private:
  struct Queue;
  struct Pending;
  static void EndOne(Queue* queue, Background* background, Pending pending);
  static void Run(const std::shared_ptr<Queue>& queue, Background* background);

  const std::shared_ptr<Queue> queue_;
  std::thread thread_;  // Last, so that Run() sees every field built.
};

}  // namespace embershard
