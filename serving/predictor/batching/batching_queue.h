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
  // Called on the queue's thread, one batch at a time, with what is to run and with
  // what is no longer worth it; not both are empty. Must answer every request in the two
  // and must not throw.
  using RunBatch = std::function<void(Batch batch, Batch expired)>;

  BatchingQueue(const BatchingOptions& options, RunBatch run_batch);
  BatchingQueue(const BatchingQueue&) = delete;
  BatchingQueue& operator=(const BatchingQueue&) = delete;
  ~BatchingQueue();  // Calls Stop().

  // Never blocks on the model. Ownership as in BatchFormer::Add().
  [[nodiscard]] Admission Submit(std::unique_ptr<Request>& request);

  // Refuses new requests, runs the accepted ones, and returns when the last has
  // been answered. Safe to call more than once, but not from `run_batch`.
  void Stop();

  // Of the moment; for metrics.
  size_t queued_examples() const;

 private:
  void Loop();

  const RunBatch run_batch_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // Signalled when the fields below change.
  BatchFormer former_;               // Guarded by mutex_.
  bool stopping_ = false;            // Guarded by mutex_.

  std::once_flag joined_;
  std::thread thread_;  // Last, so that Loop() sees every field built.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_BATCHING_QUEUE_H_
