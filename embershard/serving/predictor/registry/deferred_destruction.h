#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "base/background.h"
#include "base/clock.h"
#include "engine/engine.h"

namespace embershard {

// The last owner of an engine may be one of the engine's own threads, on its way to send an answer,
// while destroying an engine waits for its threads. So each engine is stopped on a separate thread.
// Its memory is freed in the background, or on that thread if somebody waits for it. Thread-safe.
class DeferredDestruction {
 public:
  explicit DeferredDestruction(Background* background);
  DeferredDestruction(const DeferredDestruction&) = delete;
  DeferredDestruction& operator=(const DeferredDestruction&) = delete;
  // Waits until all engines are released and destroyed. A request that was answered early keeps its
  // engine until its batch ends.
  ~DeferredDestruction();

  // After the last copy of the pointer, a thread of this object destroys the engine and then
  // releases `claim` (may be null), which accounts for the engine's memory.
  std::shared_ptr<Engine> Own(std::unique_ptr<Engine> engine,
                              std::shared_ptr<const void> claim = nullptr);

  // Waits until at most `most` engines exist. Returns false after `deadline`.
  bool WaitForEnds(size_t most, Clock::time_point deadline);

  // Requests answered by destroyed engines. An engine's count moves here from the served engines'
  // between the end of its last pointer and its destruction.
  uint64_t answered() const;

 private:
  struct Queue;
  struct Pending;
  static void EndOne(Queue* queue, Background* background, Pending pending);
  static void Run(const std::shared_ptr<Queue>& queue, Background* background);

  const std::shared_ptr<Queue> queue_;
  std::thread thread_;  // Last, so that Run() starts after all fields exist.
};

}  // namespace embershard
