// One served version of a model, from a checked request to its answer.

#ifndef EMBERSHARD_ENGINE_ENGINE_H_
#define EMBERSHARD_ENGINE_ENGINE_H_

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "batching/batching_options.h"
#include "batching/request.h"
#include "batching/slot_threads.h"
#include "engine/engine_snapshot.h"
#include "engine/load_context.h"
#include "engine/self_check.h"
#include "model/model.h"
#include "package/schema_names.h"
#include "telemetry/telemetry.h"
#include "tensors/tensor_map.h"

namespace embershard {

struct EngineOptions {
  BatchingOptions batching = {};

  // Largest difference allowed between the outputs of the package's samples and
  // what the package says they must be, for outputs beyond 1 relative to them. At least 0.
  // Raise it where this machine's arithmetic differs from the exporter's more than that.
  float sample_tolerance = kSampleTolerance;

  // Only PredictMerged() will be called, which then has a thread for each slot. The queue's are
  // not warmed up: one that has run a dense program of several threads keeps as many for itself,
  // and where these are more than the cores, OpenMP has each layer wake them anew.
  bool only_merged = false;

  // Tells the queue the time: deadlines and forecasts are judged by it. Any thread; must not go
  // backwards. For tests, which bring their own.
  std::function<Clock::time_point()> now = Clock::now;
};

// What is answered from Engine::Stop() on.
Status ShuttingDown();

// Thread-safe.
class Engine {
 public:
  // Runs the model's samples first (warm-up), alone and merged, and compares their
  // outputs: kBadPackage when they differ by more than the tolerance. That is done in
  // `context.background`, unless that is null; then as a full batch on each thread that will run
  // batches, whose first one takes longer (unless options.only_merged). Refuses options out of
  // range (kInvalidArgument).
  //
  // `threads`: those of the version that leaves for this one, which then run the batches of both;
  // the full batch is run in `context.background`, too, since they have run others. Null, or not as
  // many as the model has slots: it has threads of its own.
  static Result<std::unique_ptr<Engine>> Start(std::unique_ptr<Model> model,
                                               const EngineOptions& options,
                                               const LoadContext& context = {},
                                               std::shared_ptr<SlotThreads> threads = nullptr);
  ~Engine();  // Calls Stop().

  // Those that run its batches, for the version that follows it.
  const std::shared_ptr<SlotThreads>& threads() const;

  // Ends an engine, and gives back its model: what takes long to end.
  static std::unique_ptr<Model> End(std::unique_ptr<Engine> engine);

  const Manifest& manifest() const;

  // What one request may hold: the lesser of the package's limits and of those asked for.
  const Limits& limits() const;

  // Where the manifest's inputs and outputs stand.
  const SchemaNames& names() const;

  // What tensors mean to the model.
  const TensorMap& tensors() const;

  // Checks, queues and answers. `request->answer` is called exactly once, perhaps
  // before this returns, and at the deadline if not before.
  void Predict(std::unique_ptr<Request> request);

  // Answers a request that was given to Predict() with this ticket and has not been answered,
  // and takes it out of the queue: its client has left (kAbandoned), or says that its deadline
  // has passed (kUnstated). The engine must outlive the call.
  void Cancel(Ticket* ticket, StatusReason why);

  // Checks and runs the requests as MergedRunner does, one caller at a time; each is answered
  // before this returns. A refused one does not disturb the others. On the calling thread alone,
  // unless options.only_merged. Never throws.
  void PredictMerged(std::vector<std::unique_ptr<Request>> requests);

  // Refuses new requests (kUnavailable), answers the accepted ones, returns. Safe to call more
  // than once, but not from an answer.
  void Stop();

  // What is counted. Whoever hands requests to this engine counts its calls there.
  Telemetry& telemetry();

  // Read at any time, from any thread. Waits for nobody longer than a copy takes.
  EngineSnapshot Snapshot() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_ENGINE_H_
