#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/read_control.h"
#include "base/status.h"
#include "batching/batch_former.h"
#include "batching/batching_options.h"
#include "batching/request.h"
#include "batching/worker_pool.h"
#include "engine/self_check.h"
#include "lookup/lookup.h"
#include "model/model.h"
#include "telemetry/telemetry.h"
#include "tensors/find_names.h"
#include "tensors/tensor_map.h"

namespace embershard {

struct EngineOptions {
  BatchingOptions batching = {};

  // Largest allowed difference between the outputs of the package's samples and the expected ones,
  // at least 0; relative for outputs beyond 1. Raise it if this machine's arithmetic differs more
  // from the exporter's.
  float sample_tolerance = kSampleTolerance;

  // Runs the batches, together with those of other engines. If it is null, or has another number of
  // slots than the model, the engine creates its own pool.
  std::shared_ptr<WorkerPool> workers = nullptr;

  // Weights by model: while several have requests queued, they share the time in proportion.
  // Finite, above 0; the default is 1.
  std::map<std::string, double, std::less<>> model_weights = {};

  // Clock of the queue. Called on any thread; must not go backwards. Replaced in tests.
  std::function<Clock::time_point()> now = Clock::now;
};

struct EngineSnapshot {
  std::string model;
  int64_t version = 0;
  std::vector<std::string> sparse_inputs;  // Names, in the order of TelemetrySnapshot::unknown_ids.
  size_t max_batch_examples = 0;
  size_t slots = 0;  // Most batches that run at once.
  TelemetrySnapshot telemetry;
  QueueSize queued;
  std::vector<DeviceLoad> devices;  // Without the work for samples at the start.
};

enum class Withdrawal {
  kBatchDoesNotEnd,
  kNoMoreWorkers,  // The same, and no further worker can be replaced.
  kDeviceLost,     // See StatusReason::kDeviceLost.
};

class Engine {
 public:
  // First runs the model's samples, one by one and merged, and a full batch: kBadPackage if the
  // outputs differ by more than the tolerance. This runs in `context.background` unless that is
  // null. kInvalidArgument for options out of range and a null model.
  static Result<std::unique_ptr<Engine>> Start(std::unique_ptr<Model> model,
                                               const EngineOptions& options,
                                               const LoadContext& context = {});
  // Calls Stop(). In a forked child of the process that created it, frees nothing.
  ~Engine();

  const std::shared_ptr<WorkerPool>& workers() const;

  // Sets the one function that is called if the version cannot be served any more: after a batch
  // that does not end, when every request is refused with kUnavailable, or after a lost device,
  // when every batch fails. Called on any thread, for a lost device perhaps several times.
  using WithdrawnHook = std::function<void(Withdrawal)>;
  void OnWithdrawn(WithdrawnHook hook);

  // Destroys an engine and returns its model, whose destruction takes long.
  static std::unique_ptr<Model> End(std::unique_ptr<Engine> engine);

  const Manifest& manifest() const;

  const ProgramReport& program() const;

  // Limits per request: the lower of the package's and the options'.
  const Limits& limits() const;

  const SchemaNames& names() const;

  const TensorMap& tensors() const;

  // Validates, queues and answers a request. `request->answer` is called exactly once, possibly
  // before this returns, and at the latest at the deadline. In a forked child of the process that
  // created the engine, every request is refused (kUnavailable).
  void Predict(std::unique_ptr<Request> request);

  // Removes an unanswered request from the queue and answers it. `why` is kAbandoned if the client
  // cancelled, kUnstated if its deadline passed. The engine must outlive the call.
  void Cancel(CancellationHandle* cancellation, StatusReason why);

  // ModelRunner::PredictMerged() on the calling thread. Refuses all requests after Stop().
  void PredictMerged(Batch requests);

  // Refuses new requests (kUnavailable), answers the accepted ones, and returns. May be called more
  // than once, but not from an answer.
  void Stop();

  // Counters. The caller of Predict() counts its calls there.
  Telemetry& telemetry();

  // Thread-safe. Blocks only for the time of a copy.
  EngineSnapshot Snapshot() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace embershard
