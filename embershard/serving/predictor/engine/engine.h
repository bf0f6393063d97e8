// One served version of a model, from a checked request to its answer.

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

  // Largest difference allowed between the outputs of the package's samples and
  // what the package says they must be, for outputs beyond 1 relative to them. At least 0.
  // Raise it where this machine's arithmetic differs from the exporter's more than that.
  float sample_tolerance = kSampleTolerance;

  // Runs the batches, with those of other engines. Null, or not of as many slots as the model has:
  // the engine has a pool of its own.
  std::shared_ptr<WorkerPool> workers = nullptr;

  // Which part of the time each model gets while several have requests queued: in proportion to
  // these, by name; one that is not named has 1. Finite, above 0.
  std::map<std::string, double, std::less<>> model_weights = {};

  // Tells the queue the time: deadlines and forecasts are judged by it. Any thread; must not go
  // backwards. Tests have their own.
  std::function<Clock::time_point()> now = Clock::now;
};

// What an engine serves, holds and has counted, at one moment.
struct EngineSnapshot {
  std::string model;
  int64_t version = 0;
  std::vector<std::string> sparse_inputs;  // Names, as TelemetrySnapshot::unknown_ids counts them.
  size_t max_batch_examples = 0;
  size_t slots = 0;  // Batches that may run at once.
  TelemetrySnapshot telemetry;
  QueueSize queued;                 // Of the moment.
  std::vector<DeviceLoad> devices;  // Without what the samples cost at the start.
};

enum class Withdrawal {
  kBatchDoesNotEnd,
  kNoMoreWorkers,  // The same, and no worker will be replaced any more.
  kDeviceLost,     // See StatusReason::kDeviceLost.
};

// Thread-safe.
class Engine {
 public:
  // Runs the model's samples first (warm-up), alone and merged, then a full batch, and compares
  // their outputs: kBadPackage when they differ by more than the tolerance. That is done in
  // `context.background`, unless that is null. Refuses options out of range and a null model
  // (kInvalidArgument).
  static Result<std::unique_ptr<Engine>> Start(std::unique_ptr<Model> model,
                                               const EngineOptions& options,
                                               const LoadContext& context = {});
  // Calls Stop(). In a child that fork() made of the process that started it, frees nothing.
  ~Engine();

  // Runs its batches, and those of others.
  const std::shared_ptr<WorkerPool>& workers() const;

  // Called if the version cannot be served any more. After a batch that does not end every request
  // is refused (kUnavailable), see WorkerPool; after a lost device every batch fails. Takes one
  // hook. It may run on any thread, and several times after a lost device.
  using WithdrawnHook = std::function<void(Withdrawal)>;
  void OnWithdrawn(WithdrawnHook hook);

  // Ends an engine, and returns its model: what takes long to end.
  static std::unique_ptr<Model> End(std::unique_ptr<Engine> engine);

  const Manifest& manifest() const;

  // Which dense program it runs, and why.
  const ProgramReport& program() const;

  // What one request may hold: the lesser of the package's limits and of those asked for.
  const Limits& limits() const;

  // Where the manifest's inputs and outputs stand.
  const SchemaNames& names() const;

  // What tensors mean to the model.
  const TensorMap& tensors() const;

  // Checks, queues and answers. `request->answer` is called exactly once, perhaps
  // before this returns, and at the deadline if not before. Refuses all in a child that fork() made
  // of the process that started it (kUnavailable).
  void Predict(std::unique_ptr<Request> request);

  // Answers a request that was given to Predict() with this cancellation and has not been answered,
  // and takes it out of the queue: its client cancelled (kAbandoned), or says that its deadline
  // has passed (kUnstated). The engine must outlive the call.
  void Cancel(CancellationHandle* cancellation, StatusReason why);

  // As ModelRunner's, without the queue, on the calling thread alone. After Stop() all are refused.
  void PredictMerged(Batch requests);

  // Refuses new requests (kUnavailable), answers the accepted ones, returns. Safe to call more
  // than once, but not from an answer.
  void Stop();

  // What is counted. The caller of Predict() counts its calls there.
  Telemetry& telemetry();

  // Read at any time, from any thread. Waits for nobody longer than a copy takes.
  EngineSnapshot Snapshot() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace embershard
