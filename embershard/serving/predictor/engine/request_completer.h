// Answers requests that leave the queue: runs and counts a batch, and sends errors for the rest.

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

Status ShuttingDown();

// Status of every request after a stuck batch.
Status VersionWithdrawn();

// Thread-safe.
class RequestCompleter {
 public:
  RequestCompleter(BatchExecutor* executor, Telemetry* telemetry)
      : executor_(executor), telemetry_(telemetry) {}

  // Runs the validated requests of due.batch in the buffers of due.lease, and answers every request
  // of `due`. `held`: the batch's queue, which is told when the batch has run; may be null. Never
  // throws.
  void Run(Due due, BatchingQueue* held);

  // `lost` is called after each batch that failed because of a lost device. REQUIRES: nothing runs
  // yet.
  void OnDeviceLost(std::function<void()> lost) { on_device_lost_ = std::move(lost); }

  // Never throws.
  void CompleteEarly(EarlyCompletion early);

 private:
  // Answered requests become null.
  void RunBatch(Due* due, BatchingQueue** held);
  // Requests that were answered early do not count as answered.
  void CountRun(const Batch& batch, const Result<std::vector<Result<Response>>>& responses,
                const BatchTimes& times);
  void AnswerLeft(Batch* requests, StatusReason why);

  BatchExecutor* const executor_;
  Telemetry* const telemetry_;
  std::function<void()> on_device_lost_ = [] {};
};

}  // namespace embershard
