#include "engine/engine.h"

#include <algorithm>
#include <atomic>
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

using Counter = std::atomic<uint64_t>;

void Count(Counter& counter, uint64_t count = 1) {
  counter.fetch_add(count, std::memory_order_relaxed);
}

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

}  // namespace

Status ShuttingDown() { return {StatusCode::kUnavailable, "the server is shutting down"}; }

struct Engine::State {
  State(std::unique_ptr<Model> loaded, const BatchingOptions& complete)
      : model(std::move(loaded)),
        batching(complete),
        limits(LesserOf(model->manifest().limits, batching)),
        runner(model.get()) {}

  // Moves `request` into the queue, or says why not and leaves it.
  Status Accept(std::unique_ptr<Request>& request);

  // Answers every request in it. Never throws.
  void Answer(Due due);
  // Runs checked requests as one batch. The two leave null where they have answered.
  void RunAndAnswer(Batch* batch);
  void AnswerExpired(Batch* late);
  // Answers what is left, without taking memory.
  void AnswerFailed(std::unique_ptr<Request>& request);

  const std::unique_ptr<Model> model;
  const BatchingOptions batching;
  const Limits limits;
  BatchRunner runner;
  std::atomic<bool> stopping = false;

  Counter ok = 0;
  Counter refused = 0;
  Counter overloaded = 0;
  Counter expired = 0;
  Counter failed = 0;
  Counter examples = 0;
  Counter batches = 0;

  // Last, so that its thread sees every field built and ends before they go.
  std::unique_ptr<BatchingQueue> queue;
};

Status Engine::State::Accept(std::unique_ptr<Request>& request) {
  if (Status status = CheckRequest(*model, limits, request.get()); !status.ok()) {
    Count(refused);
    return status;
  }
  switch (queue->Submit(request)) {
    case Admission::kAccepted:
      return {};
    case Admission::kTooLarge:  // Only in bytes: the door has counted the rest.
      Count(refused);
      return InvalidArgument("request: expected at most " +
                             std::to_string(batching.max_queued_bytes) + " bytes, got " +
                             std::to_string(request->held_bytes));
    case Admission::kQueueFull:
      Count(overloaded);
      return {StatusCode::kResourceExhausted,
              "the queue is full: " + std::to_string(queue->queued().examples) +
                  " examples are waiting; try again after a pause"};
    case Admission::kExpired:
      Count(expired);
      return {StatusCode::kDeadlineExceeded, "the deadline had passed when the request arrived"};
    case Admission::kStopped:
      break;
  }
  return ShuttingDown();
}

void Engine::State::Answer(Due due) {
  try {
    AnswerExpired(&due.expired);
    if (!due.batch.empty()) RunAndAnswer(&due.batch);
  } catch (const std::exception&) {  // Memory has run out, so none is left for its story.
  }
  for (Batch* part : {&due.expired, &due.batch}) {
    for (auto& request : *part) AnswerFailed(request);
  }
  AnswerFailed(due.failed);
}

void Engine::State::RunAndAnswer(Batch* batch) {
  Result<std::vector<Result<Response>>> responses = runner.Run(*batch);
  Count(batches);
  for (size_t i = 0; i < batch->size(); ++i) {
    const Status status = responses.ok() ? (*responses)[i].status() : responses.status();
    const std::unique_ptr<Request> request = std::move((*batch)[i]);
    if (!status.ok()) {
      Count(failed);
      request->answer(status, {});
      continue;
    }
    Count(ok);
    Count(examples, request->num_examples);
    request->answer({}, std::move(*(*responses)[i]));
  }
}

void Engine::State::AnswerExpired(Batch* late) {
  for (auto& waiting : *late) {
    Status status = {StatusCode::kDeadlineExceeded,
                     "the deadline passed, or the client left, while the request waited"};
    const std::unique_ptr<Request> request = std::move(waiting);
    Count(expired);
    request->answer(std::move(status), {});
  }
}

void Engine::State::AnswerFailed(std::unique_ptr<Request>& request) {
  if (request == nullptr) return;
  const std::unique_ptr<Request> answered = std::move(request);
  Count(failed);
  answered->answer(Internal("out of memory"), {});  // So short that it lies in the string.
}

Result<std::unique_ptr<Engine>> Engine::Start(std::unique_ptr<Model> model,
                                              const EngineOptions& options) {
  if (Status status = CheckTolerance(options.sample_tolerance); !status.ok()) return status;
  const Result<BatchingOptions> batching =
      CompleteOptions(options.batching, model->manifest().limits);
  if (!batching.ok()) return batching.status();
  auto state = std::make_unique<State>(std::move(model), *batching);
  Status status = CheckSamples(*state->model, options.sample_tolerance, &state->runner);
  if (!status.ok()) return status;
  State* const running = state.get();
  state->queue = std::make_unique<BatchingQueue>(
      *batching, [running](Due due) { running->Answer(std::move(due)); });
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
  } catch (const std::exception& error) {
    status = Internal(std::string("the request failed: ") + error.what());
  }
  if (request != nullptr) request->answer(std::move(status), {});
}

void Engine::PredictMerged(std::vector<std::unique_ptr<Request>> requests) {
  Batch batch;
  for (auto& request : requests) {
    Status status = CheckRequest(*state_->model, state_->limits, request.get());
    if (!status.ok()) Count(state_->refused);
    if (status.ok() && state_->stopping) status = ShuttingDown();
    if (status.ok()) {
      batch.push_back(std::move(request));
    } else {
      request->answer(std::move(status), {});
    }
  }
  state_->Answer({.batch = std::move(batch), .expired = {}, .failed = nullptr});
}

void Engine::Stop() {
  state_->stopping = true;
  state_->queue->Stop();
}

EngineCounters Engine::counters() const {
  const auto read = [](const Counter& counter) { return counter.load(std::memory_order_relaxed); };
  return {.requests_ok = read(state_->ok),
          .requests_refused = read(state_->refused),
          .requests_overloaded = read(state_->overloaded),
          .requests_expired = read(state_->expired),
          .requests_failed = read(state_->failed),
          .examples = read(state_->examples),
          .batches = read(state_->batches),
          .queued_examples = state_->queue->queued().examples};
}

}  // namespace embershard
