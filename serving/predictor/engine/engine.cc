#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "batching/batch_former.h"
#include "batching/batching_queue.h"
#include "batching/door.h"
#include "engine/batch_runner.h"
#include "engine/self_check.h"

namespace embershard {
namespace {

Status CheckTolerance(float tolerance) {
  if (tolerance >= 0 && std::isfinite(tolerance)) return {};
  return InvalidArgument("sample_tolerance: expected a finite number of at least 0, got " +
                         std::to_string(tolerance));
}

Limits LesserOf(const Limits& package, const BatchingOptions& batching) {
  return {.max_examples = static_cast<uint32_t>(
              std::min<uint64_t>(package.max_examples, batching.max_batch_examples)),
          .max_ids = std::min(package.max_ids, batching.max_batch_ids)};
}

TelemetryOptions TelemetryOptionsOf(const Model& model, const BatchingOptions& batching,
                                    std::chrono::nanoseconds slow_request) {
  return {.sparse_inputs = model.manifest().schema.sparse.size(),
          .full_batch_examples = batching.merge_examples,
          .slow_request = slow_request};
}

Status OutOfMemory() {  // So short that it lies in the string.
  return {StatusCode::kInternal, "out of memory", StatusReason::kOutOfMemory};
}

// Why the model does not answer.
std::string LateText(const Late& late) {
  const std::string what =
      late.why == StatusReason::kAbandoned ? "the client left" : "the deadline passed";
  return what + (late.runs ? " while the request ran" : " while the request waited");
}

// Of a request for which the model failed.
Response Waited(const Request& request, Clock::time_point until) {
  Response response;
  response.num_ids = request.num_ids;
  response.timing.queue_us = MicrosecondsBetween(request.arrival, until);
  return response;
}

}  // namespace

Status ShuttingDown() { return {StatusCode::kUnavailable, "the server is shutting down"}; }

struct Engine::State {
  State(std::unique_ptr<Model> loaded, const BatchingOptions& complete,
        std::chrono::nanoseconds slow_request)
      : model(std::move(loaded)),
        batching(complete),
        limits(LesserOf(model->manifest().limits, batching)),
        telemetry(TelemetryOptionsOf(*model, batching, slow_request)),
        runner(model.get()) {}

  // The door.
  Status Admit(Request* request);

  // Moves `request` into the queue, or says why not and leaves it.
  Status Accept(std::unique_ptr<Request>& request);

  // Answers every request in it. `held`: where the batch runs for a queue, which is told when it
  // has run; else null. Never throws.
  void Answer(Due due, BatchingQueue* held);
  void AnswerLate(Late late);
  // Runs checked requests as one batch. Those that are answered leave null.
  void RunAndAnswer(Batch* batch, BatchingQueue** held);
  // Those that ran but were answered before do not count as answered.
  void CountRun(const Batch& batch, const Result<std::vector<Result<Response>>>& responses,
                const BatchTimes& times);
  void AnswerLeft(Batch* late, StatusReason why);
  // Answers what is left, without taking memory.
  void AnswerFailed(std::unique_ptr<Request>& request);

  const std::unique_ptr<Model> model;
  const BatchingOptions batching;
  const Limits limits;
  Telemetry telemetry;
  BatchRunner runner;
  std::vector<DeviceLoad> loads_at_start;  // What the samples cost the devices.
  std::atomic<bool> stopping = false;

  // Last, so that its thread sees every field built and ends before they go.
  std::unique_ptr<BatchingQueue> queue;
};

Status Engine::State::Admit(Request* request) {
  Status status = CheckRequest(*model, limits, request);
  if (status.ok()) telemetry.CountAdmitted(request->num_examples, request->num_ids);
  return status;
}

Status Engine::State::Accept(std::unique_ptr<Request>& request) {
  if (Status status = Admit(request.get()); !status.ok()) return status;
  switch (queue->Submit(request)) {
    case Admission::kAccepted:
      return {};
    case Admission::kTooLarge:  // Only in bytes: the door has counted the rest.
      return {StatusCode::kInvalidArgument,
              "request: expected at most " + std::to_string(batching.max_queued_bytes) +
                  " bytes, got " + std::to_string(request->held_bytes),
              StatusReason::kTooLarge};
    case Admission::kQueueFull:
      return {StatusCode::kResourceExhausted,
              "the queue is full: " + std::to_string(queue->queued().examples) +
                  " examples are waiting; try again after a pause"};
    case Admission::kNoTime:
      return {StatusCode::kResourceExhausted,
              "the deadline would pass first: " + std::to_string(queue->queued().examples) +
                  " examples are waiting; try again after a pause",
              StatusReason::kNoTime};
    case Admission::kExpired:
      return {StatusCode::kDeadlineExceeded, "the deadline had passed when the request arrived"};
    case Admission::kStopped:
      break;
  }
  return ShuttingDown();
}

void Engine::State::Answer(Due due, BatchingQueue* held) {
  try {
    AnswerLeft(&due.expired, StatusReason::kUnstated);
    AnswerLeft(&due.abandoned, StatusReason::kAbandoned);
    if (!due.batch.empty()) RunAndAnswer(&due.batch, &held);
  } catch (const std::exception&) {  // Memory has run out, so none is left for its story.
  }
  if (held != nullptr) held->EndRun();
  for (Batch* part : {&due.expired, &due.abandoned, &due.batch}) {
    for (auto& request : *part) AnswerFailed(request);
  }
  AnswerFailed(due.failed);
}

void Engine::State::RunAndAnswer(Batch* batch, BatchingQueue** held) {
  BatchTimes times;
  Result<std::vector<Result<Response>>> responses = runner.Run(*batch, &times);
  if (*held != nullptr) std::exchange(*held, nullptr)->EndRun();
  CountRun(*batch, responses, times);
  for (size_t i = 0; i < batch->size(); ++i) {
    Status status = responses.ok() ? (*responses)[i].status() : responses.status();
    const std::unique_ptr<Request> request = std::move((*batch)[i]);
    if (!request->answer) continue;  // Its deadline passed while it ran, or its client left.
    if (status.ok()) {
      Response& response = *(*responses)[i];
      response.num_ids = request->num_ids;
      request->answer({}, std::move(response));
    } else {
      Response failed = Waited(*request, times.start);
      failed.timing.lookup_us = times.lookup_us;
      failed.timing.dense_us = times.dense_us;
      request->answer(std::move(status), std::move(failed));
    }
  }
}

void Engine::State::CountRun(const Batch& batch,
                             const Result<std::vector<Result<Response>>>& responses,
                             const BatchTimes& times) {
  uint64_t examples = 0;
  for (const auto& request : batch) {
    telemetry.CountQueued(times.start - request->arrival);
    examples += request->num_examples;
  }
  if (!responses.ok()) return telemetry.CountFailedBatch();
  uint64_t answered = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Result<Response>& response = (*responses)[i];
    if (!response.ok() || !batch[i]->answer) continue;
    ++answered;
    for (const UnknownIdCount& unknown : response->unknown_ids) {
      telemetry.CountUnknownIds(unknown.sparse_input, unknown.count);
    }
  }
  telemetry.CountBatch({.requests = batch.size(),
                        .answered = answered,
                        .examples = examples,
                        .lookup_us = times.lookup_us,
                        .dense_us = times.dense_us});
}

void Engine::State::AnswerLeft(Batch* late, StatusReason why) {
  for (auto& waiting : *late) AnswerLate(Late(std::move(waiting), why));
}

void Engine::State::AnswerLate(Late late) {
  Response response;
  response.timing.queue_us = late.runs ? 0 : MicrosecondsBetween(late.arrival, Clock::now());
  response.num_ids = late.num_ids;
  Status status;
  try {
    status = {StatusCode::kDeadlineExceeded, LateText(late), late.why};
  } catch (const std::exception&) {
    status = OutOfMemory();
  }
  late.answer(std::move(status), std::move(response));
}

void Engine::State::AnswerFailed(std::unique_ptr<Request>& request) {
  if (request == nullptr) return;
  const std::unique_ptr<Request> answered = std::move(request);
  if (answered->answer) answered->answer(OutOfMemory(), {});
}

Result<std::unique_ptr<Engine>> Engine::Start(std::unique_ptr<Model> model,
                                              const EngineOptions& options) {
  if (Status status = CheckTolerance(options.sample_tolerance); !status.ok()) return status;
  const Result<BatchingOptions> batching =
      CompleteOptions(options.batching, model->manifest().limits);
  if (!batching.ok()) return batching.status();
  auto state = std::make_unique<State>(std::move(model), *batching, options.slow_request);
  Status status = CheckSamples(*state->model, options.sample_tolerance, &state->runner);
  if (!status.ok()) return status;
  state->loads_at_start = state->model->device_loads();
  State* const running = state.get();
  state->queue = std::make_unique<BatchingQueue>(
      *batching,
      [running](Due due, BatchingQueue* queue) { running->Answer(std::move(due), queue); },
      [running](Late late) { running->AnswerLate(std::move(late)); });
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() { Stop(); }

const Manifest& Engine::manifest() const { return state_->model->manifest(); }

const Limits& Engine::limits() const { return state_->limits; }

Status Engine::CheckName(std::string_view model, int64_t version, std::string_view label) const {
  const Manifest& served = manifest();
  const std::string served_text =
      "'" + served.model + "' version " + std::to_string(served.version);
  if (!model.empty() && model != served.model) {
    return NotFound("model '" + std::string(model) + "' is not served here, expected " +
                    served_text);
  }
  if (version != 0 && version != served.version) {
    return NotFound("version " + std::to_string(version) + " is not served here, expected " +
                    served_text);
  }
  if (!label.empty()) {
    return NotFound("label '" + std::string(label) + "' is not defined here, expected none or " +
                    served_text);
  }
  return {};
}

void Engine::Predict(std::unique_ptr<Request> request) {
  Status status;
  try {
    status = state_->Accept(request);
  } catch (const std::exception&) {  // Memory has run out.
    status = OutOfMemory();
  }
  if (request == nullptr) return;
  Response response;
  response.num_ids = request->num_ids;
  if (status.code() == StatusCode::kResourceExhausted) {
    response.retry_after = state_->queue->RetryAfter(*request);
  }
  request->answer(std::move(status), std::move(response));
}

void Engine::Cancel(Ticket* ticket, StatusReason why) { state_->queue->Cancel(ticket, why); }

void Engine::PredictMerged(std::vector<std::unique_ptr<Request>> requests) {
  Batch batch;
  for (auto& request : requests) {
    Status status = state_->Admit(request.get());
    if (status.ok() && state_->stopping) status = ShuttingDown();
    if (status.ok()) {
      batch.push_back(std::move(request));
    } else {
      request->answer(std::move(status), {});
    }
  }
  Due due;
  due.batch = std::move(batch);
  state_->Answer(std::move(due), nullptr);
}

void Engine::Stop() {
  state_->stopping = true;
  state_->queue->Stop();
  state_->telemetry.slow_log().Close();
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
