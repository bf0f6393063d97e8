// Answers what leaves the queue: runs what is due, counts it, and tells why of the rest.

#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "batching/batch_former.h"
#include "batching/batching_queue.h"
#include "batching/request.h"
#include "batching/running_batch.h"
#include "engine/batch_executor.h"
#include "telemetry/telemetry.h"

namespace embershard {

// Answers every request after Engine::Stop().
Status ShuttingDown();

// Answers every request after the version was withdrawn because a batch of it does not end.
Status VersionWithdrawn();

// Thread-safe.
class RequestCompleter {
 public:
  // Owns neither; both must outlive it.
  RequestCompleter(BatchExecutor* executor, Telemetry* telemetry)
      : executor_(executor), telemetry_(telemetry) {}

  // Runs due.batch, whose requests have been checked, in the buffers of due.lease, and answers
  // every request of `due`. `held`: the queue whose batch it is, which is told when it has run;
  // null: none. Never throws.
  void Run(Due due, BatchingQueue* held);

  // Called after each batch that failed because a device is lost. REQUIRES: nothing runs yet.
  void OnDeviceLost(std::function<void()> lost) { on_device_lost_ = std::move(lost); }

  // Never throws.
  void CompleteEarly(EarlyCompletion early);

 private:
  // Those that are answered leave null.
  void RunBatch(Due* due, BatchingQueue** held);
  // Those that ran but were answered before do not count as answered.
  void CountRun(const Batch& batch, const Result<std::vector<Result<Response>>>& responses,
                const BatchTimes& times);
  void AnswerLeft(Batch* requests, StatusReason why);

  BatchExecutor* const executor_;
  Telemetry* const telemetry_;
  std::function<void()> on_device_lost_ = [] {};
};

}  // namespace embershard
