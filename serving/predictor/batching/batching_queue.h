// Feeds a BatchFormer the real time, from any thread, and runs each batch on a
// thread of its own. An idle model runs what there is at once; while it is busy,
// requests gather.

#ifndef EMBERSHARD_BATCHING_BATCHING_QUEUE_H_
#define EMBERSHARD_BATCHING_BATCHING_QUEUE_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "batching/batch_former.h"
#include "batching/request.h"

namespace embershard {

// Thread-safe. Every accepted request is answered exactly once, at shutdown too.
class BatchingQueue {
 public:
  // Called on the queue's thread, one batch at a time, with at least one request. Must
  // answer every request in it and must not throw.
  using RunBatch = std::function<void(Due due)>;
  // Tells the time. Any thread; must not go backwards.
  using Now = std::function<Clock::time_point()>;

  // REQUIRES: options as CompleteOptions() gives them.
  BatchingQueue(const BatchingOptions& options, RunBatch run_batch, Now now = Clock::now);
  BatchingQueue(const BatchingQueue&) = delete;
  BatchingQueue& operator=(const BatchingQueue&) = delete;
  ~BatchingQueue();  // Calls Stop().

  // Never blocks on the model. Ownership as in BatchFormer::Add().
  [[nodiscard]] Admission Submit(std::unique_ptr<Request>& request);

  // Refuses new requests, runs the accepted ones, and returns when the last has
  // been answered. Safe to call more than once, but not from `run_batch`.
  void Stop();

  // Of the moment; for metrics.
  QueueSize queued() const;

 private:
  void Loop();

  const RunBatch run_batch_;
  const Now now_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // Signalled when the fields below change.
  BatchFormer former_;               // Guarded by mutex_.
  bool stopping_ = false;            // Guarded by mutex_.

  std::once_flag joined_;
  std::thread thread_;  // Last, so that Loop() sees every field built.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_BATCHING_QUEUE_H_
