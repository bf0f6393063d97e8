#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/divide_up.h"
#include "batching/batch_former.h"
#include "batching/batching_queue.h"
#include "batching/split_request.h"
#include "engine/fork_count.h"
#include "engine/model_runner.h"
#include "engine/request_completer.h"

namespace embershard {
namespace {

Status CheckWeights(const std::map<std::string, double, std::less<>>& weights) {
  for (const auto& [model, weight] : weights) {
    if (weight > 0 && std::isfinite(weight)) continue;
    return InvalidArgument("model_weights: '", model, "': expected a finite number above 0, got ",
                           weight);
  }
  return {};
}

}  // namespace

struct Engine::State {
  State(std::unique_ptr<ModelRunner> started, const EngineOptions& options);

  // True in a forked child, which does not have the threads.
  bool IsForked() const { return ForkCount() != forks; }
  Status CheckThreads() const;

  // Queues `request`. On failure it stays with the caller.
  Status Accept(std::unique_ptr<Request>& request);
  void Tell(Withdrawal why);
  // Limits of a request's chunks: a batch, or less if idle slots can share the request.
  ChunkBudget CutOf(const Request& request) const;
  Status Refusal(Admission admission, const Request& request) const;

  const uint64_t forks = ForkCount();
  const std::unique_ptr<ModelRunner> runner;
  const TensorMap tensors;
  const std::vector<DeviceLoad> loads_at_start;  // Work of the samples on the devices.
  Mutex hook_mutex;
  WithdrawnHook hook GUARDED_BY(hook_mutex);  // May be null.
  std::atomic<bool> stopping = false;
  std::shared_ptr<WorkerPool> workers;

  // Last, so that it is destroyed first: threads that run its batches use the other fields.
  std::unique_ptr<BatchingQueue> queue;
};

Engine::State::State(std::unique_ptr<ModelRunner> started, const EngineOptions& options)
    : runner(std::move(started)),
      tensors(&runner->manifest().schema, &runner->names(), &runner->limits()),
      loads_at_start(runner->model().device_loads()),
      workers(options.workers) {
  const size_t slots = runner->batching().slots;
  const bool fits = workers != nullptr && workers->slots() == slots;
  if (!fits) workers = std::make_shared<WorkerPool>(slots);
  const std::string& name = runner->manifest().model;
  const auto weight = options.model_weights.find(name);
  RequestCompleter& completer = runner->completer();
  queue = std::make_unique<BatchingQueue>(
      runner->batching(),
      [&completer](Due due, BatchingQueue* full) { completer.Run(std::move(due), full); },
      [&completer](EarlyCompletion early) { completer.CompleteEarly(std::move(early)); },
      options.now, workers,
      QueueOwner{.model = name,
                 .weight = weight != options.model_weights.end() ? weight->second : 1,
                 .on_withdrawn = [this](bool exhausted) {
                   Tell(exhausted ? Withdrawal::kNoMoreWorkers : Withdrawal::kBatchDoesNotEnd);
                 }});
  completer.OnDeviceLost([this] { Tell(Withdrawal::kDeviceLost); });
}

void Engine::State::Tell(Withdrawal why) {
  WithdrawnHook told;
  {
    const MutexLock lock(hook_mutex);
    told = hook;
  }
  if (told) told(why);
}

Status Engine::State::CheckThreads() const {
  if (!IsForked()) return {};
  return {StatusCode::kUnavailable,
          "the engine's threads are not in this process, which fork() made: load after fork()"};
}

Status Engine::State::Accept(std::unique_ptr<Request>& request) {
  RETURN_IF_ERROR(CheckThreads());
  RETURN_IF_ERROR(runner->Admit(request.get()));
  const ChunkBudget cut = CutOf(*request);
  if (IsLarger(*request, cut)) {
    const Admission room = queue->RoomFor(*request);
    if (room != Admission::kAccepted) return Refusal(room, *request);
    request->split = std::make_shared<SplitRequest>(
        &runner->manifest().schema, cut, *request,
        [this](const SplitRequest& split) { return queue->Take(split); });
    request->held_bytes += request->split->held_bytes();
  }
  const Admission admission = queue->Submit(request);
  if (admission == Admission::kAccepted) return {};
  return Refusal(admission, *request);
}

ChunkBudget Engine::State::CutOf(const Request& request) const {
  const Schema& schema = runner->manifest().schema;
  const ChunkBudget& budget = runner->budget();
  const auto of_examples = [&schema](size_t output) {
    return schema.outputs[output].scope == Scope::kExample;
  };
  if (std::ranges::none_of(request.outputs_wanted, of_examples)) return budget;
  uint64_t request_ids = 0;  // Ids that each chunk has.
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    if (schema.sparse[i].scope == Scope::kRequest) request_ids += request.sparse[i].num_ids;
  }
  uint64_t chunks = queue->ChunksFor(request);
  if (request_ids > 0) chunks = DivideUp(chunks * (request.num_ids - request_ids), request.num_ids);
  const uint64_t share = DivideUp(request.num_examples, std::max<uint64_t>(chunks, 1));
  return {.examples = static_cast<uint32_t>(std::clamp<uint64_t>(share, 1, budget.examples)),
          .ids = budget.ids};
}

Status Engine::State::Refusal(Admission admission, const Request& request) const {
  switch (admission) {
    case Admission::kAccepted:
      return {};
    case Admission::kTooLarge:  // Only in bytes: validation has checked the counts.
      return {StatusCode::kInvalidArgument,
              "request: expected at most " + std::to_string(runner->batching().max_queued_bytes) +
                  " bytes, got " + std::to_string(request.held_bytes),
              StatusReason::kTooLarge};
    case Admission::kQueueFull:
      return {StatusCode::kResourceExhausted,
              "the queue is full: " + std::to_string(queue->queued().work.examples) +
                  " examples are waiting; try again after a pause"};
    case Admission::kDeadlineInfeasible:
      return {StatusCode::kResourceExhausted,
              "the deadline would pass first: " + std::to_string(queue->queued().work.examples) +
                  " examples are waiting; try again after a pause",
              StatusReason::kDeadlineInfeasible};
    case Admission::kExpired:
      return {StatusCode::kDeadlineExceeded, "the deadline had passed when the request arrived"};
    case Admission::kWithdrawn:
      return VersionWithdrawn();
    case Admission::kStopped:
      break;
  }
  return ShuttingDown();
}

Result<std::unique_ptr<Engine>> Engine::Start(std::unique_ptr<Model> model,
                                              const EngineOptions& options,
                                              const LoadContext& context) {
  RETURN_IF_ERROR(CheckWeights(options.model_weights));
  ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner,
                   ModelRunner::Start(std::move(model), options.batching, options.sample_tolerance,
                                      /*threads=*/1, context));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<State>(std::move(runner), options)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  Stop();
  if (state_->IsForked()) (void)state_.release();  // Its destructor would wait for the threads.
}

std::unique_ptr<Model> Engine::End(std::unique_ptr<Engine> engine) {
  engine->Stop();
  return engine->state_->runner->TakeModel();
}

const Manifest& Engine::manifest() const { return state_->runner->manifest(); }

const ProgramReport& Engine::program() const { return state_->runner->model().program(); }

const Limits& Engine::limits() const { return state_->runner->limits(); }

const SchemaNames& Engine::names() const { return state_->runner->names(); }

const TensorMap& Engine::tensors() const { return state_->tensors; }

void Engine::Predict(std::unique_ptr<Request> request) {
  Status status = Guarded("the call failed: ", [&] { return state_->Accept(request); });
  if (request == nullptr) return;
  Response response;
  response.num_ids = request->num_ids;
  if (status.code() == StatusCode::kResourceExhausted) {
    response.retry_after = state_->queue->RetryAfter(*request);
  }
  request->answer(std::move(status), std::move(response));
}

void Engine::Cancel(CancellationHandle* cancellation, StatusReason why) {
  state_->queue->Cancel(cancellation, why);
}

void Engine::PredictMerged(Batch requests) {
  const Status status = state_->stopping ? ShuttingDown() : state_->CheckThreads();
  if (status.ok()) return state_->runner->PredictMerged(std::move(requests));
  for (const auto& request : requests) request->answer(status, {});
}

void Engine::Stop() {
  state_->stopping = true;
  if (!state_->IsForked()) state_->queue->Stop();
}

const std::shared_ptr<WorkerPool>& Engine::workers() const { return state_->workers; }

void Engine::OnWithdrawn(WithdrawnHook hook) {
  const MutexLock lock(state_->hook_mutex);
  state_->hook = std::move(hook);
}

Telemetry& Engine::telemetry() { return state_->runner->telemetry(); }

EngineSnapshot Engine::Snapshot() const {
  EngineSnapshot snapshot;
  snapshot.model = manifest().model;
  snapshot.version = manifest().version;
  for (const SparseInput& input : manifest().schema.sparse) {
    snapshot.sparse_inputs.push_back(input.name);
  }
  snapshot.max_batch_examples = state_->runner->batching().max_batch_examples;
  snapshot.slots = state_->runner->batching().slots;
  snapshot.telemetry = state_->runner->telemetry().Read();
  snapshot.queued = state_->queue->queued();
  snapshot.devices = state_->runner->model().device_loads();
  for (size_t i = 0; i < state_->loads_at_start.size(); ++i) {
    const DeviceLoad& before = state_->loads_at_start[i];
    snapshot.devices[i].lookup_ns -= before.lookup_ns;
    snapshot.devices[i].batches -= before.batches;
    snapshot.devices[i].rows -= before.rows;
    snapshot.devices[i].dense_ns -= before.dense_ns;
    snapshot.devices[i].copied_bytes -= before.copied_bytes;
  }
  return snapshot;
}

}  // namespace embershard
