// Runs copies of requests for shadow versions, in the time that all other threads leave.

#ifndef EMBERSHARD_ENGINE_COPY_RUNNER_H_
#define EMBERSHARD_ENGINE_COPY_RUNNER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "batching/request.h"
#include "engine/engine.h"

namespace embershard {

// Thread-safe. Every copy is answered exactly once: kDeadlineExceeded where its turn comes too
// late, kUnavailable where its version is no shadow any more, or this ends.
class CopyRunner {
 public:
  // Whether the version gets copies, and no other requests. Asked before each batch: while one
  // runs here, others that the version gets wait for it, and may wait for long.
  using IsShadow = std::function<bool(const Engine& engine)>;

  // What is run as one batch of copies: so small that caches stay with those who serve.
  static constexpr size_t kBatchCopies = 8;
  static constexpr uint64_t kBatchExamples = 256;  // One copy that has more runs alone.

  explicit CopyRunner(IsShadow is_shadow);
  CopyRunner(const CopyRunner&) = delete;
  CopyRunner& operator=(const CopyRunner&) = delete;
  ~CopyRunner();  // Waits for the batch that runs.

  // Has `engine` answer the copy some time. How many wait is the caller's to bound.
  void Give(std::shared_ptr<Engine> engine, std::unique_ptr<Request> copy) noexcept;

 private:
  struct Waiting {
    std::shared_ptr<Engine> engine;
    std::unique_ptr<Request> copy;
  };

  void Loop();
  // Runs what comes first, and what follows it and fits its batch. REQUIRES: `waiting` has some.
  void RunFirst(std::deque<Waiting>* waiting);

  const IsShadow is_shadow_;

  std::mutex mutex_;  // Held for moments only: its holder may have to wait for a processor.
  std::condition_variable changed_;     // Signalled when the fields below change.
  std::deque<Waiting> waiting_;         // Guarded by mutex_.
  std::atomic<bool> stopping_ = false;  // Changes under mutex_.

  std::thread thread_;  // Last, so that Loop() sees every field built.
};

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_COPY_RUNNER_H_
