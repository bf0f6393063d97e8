// Runs requests that are given together, without a queue: in shares, one on each thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "base/task_thread.h"
#include "batching/batch_costs.h"
#include "batching/request.h"
#include "batching/split_request.h"
#include "engine/request_completer.h"
#include "model/slot.h"
#include "package/manifest.h"

namespace embershard {

// Thread-safe; calls run one at a time.
class MergedExecutor {
 public:
  // What is worth a further thread: with fewer examples the caller is done before that one wakes.
  static constexpr uint64_t kShareExamples = 16;

  // `budget`: of a batch. `threads`: the caller's and others, of which each has a slot.
  // `schema` and `completer` must outlive this.
  MergedExecutor(const Schema* schema, const ChunkBudget& budget, RequestCompleter* completer,
                 size_t threads);

  // Runs `work` in the buffers of each thread but the caller's. The first that fails.
  Status WarmUp(const std::function<Status(Slot* buffers)>& work);

  // Answers all, which are valid: in batches of at most the budget, on each thread of
  // about as many examples, as far as they are given in such an order. A request that is larger
  // than a thread's share is cut. Deadlines do not count. Never throws.
  void Run(Batch requests);

 private:
  struct Share {
    std::vector<Batch> batches;
    BatchSize last;  // Of the last batch.
    uint64_t examples = 0;
  };

  // Leaves what cannot be given for want of memory, and in `wholes` what is cut.
  void Divide(Batch* requests, Batch* wholes, std::vector<Share>* shares) const;
  void Cut(std::unique_ptr<Request>* whole, uint32_t examples, std::vector<Share>* shares) const;
  // To the share that has the least.
  void Give(std::unique_ptr<Request>& request, std::vector<Share>* shares) const;
  // Runs `work` on the caller's thread, number 0, and on the others, up to `threads`.
  void OnThreads(size_t threads, const std::function<void(size_t thread)>& work);

  const Schema* const schema_;
  const ChunkBudget budget_;
  RequestCompleter* const completer_;
  std::vector<std::shared_ptr<Slot>> buffers_;  // By thread.

  Mutex mutex_;
  const std::function<void(size_t)>* work_ = nullptr;  // Guarded by mutex_, and by Start(), Wait().
  std::vector<std::unique_ptr<TaskThread>> others_;    // Last: they use the fields above.
};

}  // namespace embershard
