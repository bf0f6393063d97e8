#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <string>
#include <utility>

#include "base/divide_up.h"
#include "base/fork_count.h"
#include "batching/batch_former.h"
#include "batching/batching_queue.h"
#include "batching/request_validation.h"
#include "batching/split_request.h"
#include "engine/batch_executor.h"
#include "engine/merged_executor.h"
#include "engine/request_completer.h"

namespace embershard {
namespace {

Status CheckTolerance(float tolerance) {
  if (tolerance >= 0 && std::isfinite(tolerance)) return {};
  return InvalidArgument("sample_tolerance: expected a finite number of at least 0, got ",
                         tolerance);
}

Status CheckWeights(const std::map<std::string, double, std::less<>>& weights) {
  for (const auto& [model, weight] : weights) {
    if (weight > 0 && std::isfinite(weight)) continue;
    return InvalidArgument("model_weights: '", model, "': expected a finite number above 0, got ",
                           weight);
  }
  return {};
}

Limits LesserOf(const Limits& package, const BatchingOptions& batching) {
  return {.max_examples = static_cast<uint32_t>(
              std::min<uint64_t>(package.max_examples, batching.max_request_examples)),
          .max_ids = std::min(package.max_ids, batching.max_request_ids)};
}

ChunkBudget BudgetOf(const BatchingOptions& batching) {
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  return {.examples = static_cast<uint32_t>(std::min(batching.max_batch_examples, kMost)),
          .ids = batching.max_batch_ids};
}

TelemetryOptions TelemetryOptionsOf(const Model& model, const BatchingOptions& batching) {
  return {.sparse_inputs = model.manifest().schema.sparse.size(),
          .full_batch_examples = batching.merge_examples};
}

}  // namespace

Status VersionWithdrawn() {
  return {StatusCode::kUnavailable, "the version was withdrawn: one of its batches does not end",
          StatusReason::kWithdrawn};
}

Status ShuttingDown() { return {StatusCode::kUnavailable, "the server is shutting down"}; }

struct Engine::State {
  State(std::unique_ptr<Model> loaded, const BatchingOptions& complete)
      : model(std::move(loaded)),
        batching(complete),
        limits(LesserOf(model->manifest().limits, batching)),
        budget(BudgetOf(batching)),
        names(model->manifest().schema),
        tensors(&model->manifest().schema, &names, &limits),
        telemetry(TelemetryOptionsOf(*model, batching)),
        executor(model.get()),
        completer(&executor, &telemetry) {}

  // Whether this is a child of the process that started it, without the threads.
  bool IsForked() const { return ForkCount() != forks; }

  // Validates.
  Status Admit(Request* request);

  // Moves `request` into the queue, or says why not and leaves it.
  Status Accept(std::unique_ptr<Request>& request);
  // The largest chunk of a request: a batch, or its share where slots stand idle.
  ChunkBudget CutOf(const Request& request) const;
  // What is answered where that is not kAccepted.
  Status Refusal(Admission admission, const Request& request) const;

  // Warms up, then starts the queue.
  Status StartQueue(const EngineOptions& options, const LoadContext& context);
  Status RunFullBatch(float tolerance, Slot* buffers, ReadControl* control);

  const uint64_t forks = ForkCount();
  std::unique_ptr<Model> model;  // Not null before End().
  const BatchingOptions batching;
  const Limits limits;
  const ChunkBudget budget;
  const SchemaNames names;
  const TensorMap tensors;
  Telemetry telemetry;
  BatchExecutor executor;
  RequestCompleter completer;
  std::unique_ptr<MergedExecutor> merged_executor;
  std::shared_ptr<WorkerPool> workers;  // Not null before a queue is.
  Mutex hook_mutex;
  WithdrawnHook hook GUARDED_BY(hook_mutex);  // May be null.
  std::vector<DeviceLoad> loads_at_start;     // What the samples cost the devices.
  std::atomic<bool> stopping = false;

  // Last, so that its threads see every field built and look at none when it has stopped.
  std::unique_ptr<BatchingQueue> queue;
};

Status Engine::State::Admit(Request* request) {
  Status status = CheckRequest(*model, limits, request);
  if (status.ok()) telemetry.CountAdmitted(request->num_examples, request->num_ids);
  return status;
}

Status Engine::State::Accept(std::unique_ptr<Request>& request) {
  if (IsForked()) {
    return {StatusCode::kUnavailable,
            "the engine's threads are not in this process, which fork() made: load after fork()"};
  }
  RETURN_IF_ERROR(Admit(request.get()));
  const ChunkBudget cut = CutOf(*request);
  if (IsLarger(*request, cut)) {
    const Admission room = queue->RoomFor(*request);
    if (room != Admission::kAccepted) return Refusal(room, *request);
    request->split = std::make_shared<SplitRequest>(
        &model->manifest().schema, cut, *request,
        [this](const SplitRequest& split) { return queue->Take(split); });
    request->held_bytes += request->split->held_bytes();
  }
  const Admission admission = queue->Submit(request);
  if (admission == Admission::kAccepted) return {};
  return Refusal(admission, *request);
}

ChunkBudget Engine::State::CutOf(const Request& request) const {
  const Schema& schema = model->manifest().schema;
  const auto of_examples = [&schema](size_t output) {
    return schema.outputs[output].scope == Scope::kExample;
  };
  if (std::ranges::none_of(request.outputs_wanted, of_examples)) return budget;
  uint64_t request_ids = 0;  // Which each chunk has.
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
    case Admission::kTooLarge:  // Only in bytes: validation has counted the rest.
      return {StatusCode::kInvalidArgument,
              "request: expected at most " + std::to_string(batching.max_queued_bytes) +
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

Status Engine::State::StartQueue(const EngineOptions& options, const LoadContext& context) {
  const float tolerance = options.sample_tolerance;
  RETURN_IF_ERROR(RunIn(context.background, [&] {
    Slot buffers;
    RETURN_IF_ERROR(CheckSamples(*model, tolerance, &executor, &buffers, context.control));
    return executor.RunInEachSlot(
        [&] { return RunFullBatch(tolerance, &buffers, context.control); });
  }));
  merged_executor = std::make_unique<MergedExecutor>(&model->manifest().schema, budget, &completer,
                                                     options.only_merged ? batching.slots : 1);
  RETURN_IF_ERROR(merged_executor->WarmUp(
      [&](Slot* buffers) { return RunFullBatch(tolerance, buffers, context.control); }));
  const bool fits = options.workers != nullptr && options.workers->slots() == batching.slots;
  workers = fits ? options.workers : std::make_shared<WorkerPool>(batching.slots);
  const std::string& name = model->manifest().model;
  const auto weight = options.model_weights.find(name);
  queue = std::make_unique<BatchingQueue>(
      batching, [this](Due due, BatchingQueue* full) { completer.Run(std::move(due), full); },
      [this](EarlyCompletion early) { completer.CompleteEarly(std::move(early)); }, options.now,
      workers,
      QueueOwner{.model = name,
                 .weight = weight != options.model_weights.end() ? weight->second : 1,
                 .on_withdrawn = [this](bool exhausted) {
                   WithdrawnHook told;
                   {
                     const MutexLock lock(hook_mutex);
                     told = hook;
                   }
                   if (told) told(exhausted);
                 }});
  return {};
}

Status Engine::State::RunFullBatch(float tolerance, Slot* buffers, ReadControl* control) {
  // As much as is merged: a larger request is rare.
  const ChunkBudget full = {
      .examples = static_cast<uint32_t>(std::min<size_t>(batching.merge_examples, budget.examples)),
      .ids = budget.ids};
  return CheckFullBatch(*model, full, tolerance, &executor, buffers, control);
}

Result<std::unique_ptr<Engine>> Engine::Start(std::unique_ptr<Model> model,
                                              const EngineOptions& options,
                                              const LoadContext& context) {
  if (model == nullptr) return InvalidArgument("model: expected one, got none");
  RETURN_IF_ERROR(CheckTolerance(options.sample_tolerance));
  RETURN_IF_ERROR(CheckWeights(options.model_weights));
  BatchingOptions asked = options.batching;
  asked.slots = model->slots();
  ASSIGN_OR_RETURN(const BatchingOptions batching,
                   CompleteOptions(asked, model->manifest().limits));
  auto state = std::make_unique<State>(std::move(model), batching);
  if (Status status = state->StartQueue(options, context); !status.ok()) {
    (void)RunIn(context.background, [&state] {  // What it holds takes time to give back.
      state.reset();
      return Status();
    });
    return status;
  }
  state->loads_at_start = state->model->device_loads();
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  Stop();
  if (state_->IsForked()) (void)state_.release();  // Its end would wait for the threads.
}

std::unique_ptr<Model> Engine::End(std::unique_ptr<Engine> engine) {
  engine->Stop();
  return std::move(engine->state_->model);
}

const Manifest& Engine::manifest() const { return state_->model->manifest(); }

const ProgramReport& Engine::program() const { return state_->model->program(); }

const Limits& Engine::limits() const { return state_->limits; }

const SchemaNames& Engine::names() const { return state_->names; }

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

void Engine::PredictMerged(std::vector<std::unique_ptr<Request>> requests) {
  Batch checked;
  try {
    checked.reserve(requests.size());
  } catch (const std::exception&) {  // Memory has run out.
    for (const auto& request : requests) request->answer(OutOfMemory(), {});
    return;
  }
  for (auto& request : requests) {
    Status status = Guarded("the call failed: ", [&] { return state_->Admit(request.get()); });
    if (status.ok() && state_->stopping) status = ShuttingDown();
    if (status.ok()) {
      checked.push_back(std::move(request));
    } else {
      request->answer(std::move(status), {});
    }
  }
  state_->merged_executor->Run(std::move(checked));
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

Telemetry& Engine::telemetry() { return state_->telemetry; }

EngineSnapshot Engine::Snapshot() const {
  EngineSnapshot snapshot;
  snapshot.model = manifest().model;
  snapshot.version = manifest().version;
  for (const SparseInput& input : manifest().schema.sparse) {
    snapshot.sparse_inputs.push_back(input.name);
  }
  snapshot.max_batch_examples = state_->batching.max_batch_examples;
  snapshot.slots = state_->batching.slots;
  snapshot.telemetry = state_->telemetry.Read();
  snapshot.queued = state_->queue->queued();
  snapshot.devices = state_->model->device_loads();
  for (size_t i = 0; i < state_->loads_at_start.size(); ++i) {
    const DeviceLoad& before = state_->loads_at_start[i];
    snapshot.devices[i].lookup_ns -= before.lookup_ns;
    snapshot.devices[i].batches -= before.batches;
    snapshot.devices[i].rows -= before.rows;
  }
  return snapshot;
}

}  // namespace embershard
