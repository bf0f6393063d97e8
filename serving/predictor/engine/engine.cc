#include "engine/engine.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <utility>

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

Status CheckOptions(const BatchingOptions& options) {
  const auto check = [](const std::string& what, uint64_t batch, uint64_t queued) {
    if (batch == 0) return InvalidArgument("max_batch_" + what + ": expected at least 1, got 0");
    if (batch <= queued) return Status();
    return InvalidArgument("max_queued_" + what + ": expected at least " + std::to_string(batch) +
                           " (max_batch_" + what + "), got " + std::to_string(queued));
  };
  Status status = check("examples", options.max_batch_examples, options.max_queued_examples);
  if (!status.ok()) return status;
  return check("ids", options.max_batch_ids, options.max_queued_ids);
}

}  // namespace

struct Engine::State {
  State(std::unique_ptr<Model> loaded, const EngineOptions& engine_options)
      : model(std::move(loaded)), options(engine_options), runner(model.get()) {}

  // Moves `request` into the queue, or says why not and leaves it.
  Status Accept(std::unique_ptr<Request>& request);

  // Runs checked requests as one batch and answers them.
  void RunAndAnswer(Batch batch);
  void AnswerExpired(Batch expired);

  const std::unique_ptr<Model> model;
  const EngineOptions options;
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
  if (Status status = CheckRequest(*model, request.get()); !status.ok()) {
    Count(refused);
    return status;
  }
  switch (queue->Submit(request)) {
    case Admission::kAccepted:
      return {};
    case Admission::kTooLarge:
      Count(refused);
      return InvalidArgument(
          "request: expected at most " + std::to_string(options.batching.max_batch_examples) +
          " examples and " + std::to_string(options.batching.max_batch_ids) + " ids, got " +
          std::to_string(request->num_examples) + " and " + std::to_string(request->num_ids));
    case Admission::kQueueFull:
      Count(overloaded);
      return {StatusCode::kResourceExhausted,
              "the queue is full: " + std::to_string(queue->queued_examples()) +
                  " examples are waiting; try again after a pause"};
    case Admission::kExpired:
      Count(expired);
      return {StatusCode::kDeadlineExceeded, "the deadline had passed when the request arrived"};
    case Admission::kStopped:
      break;
  }
  return {StatusCode::kUnavailable, "the server is shutting down"};
}

void Engine::State::RunAndAnswer(Batch batch) {
  Result<std::vector<Response>> responses = runner.Run(batch);
  Count(batches);
  for (size_t i = 0; i < batch.size(); ++i) {
    if (!responses.ok()) {
      Count(failed);
      batch[i]->answer(responses.status(), {});
      continue;
    }
    Count(ok);
    Count(examples, batch[i]->num_examples);
    batch[i]->answer({}, std::move((*responses)[i]));
  }
}

void Engine::State::AnswerExpired(Batch late) {
  for (const auto& request : late) {
    Count(expired);
    request->answer({StatusCode::kDeadlineExceeded,
                     "the deadline passed, or the client left, while the request waited"},
                    {});
  }
}

Result<std::unique_ptr<Engine>> Engine::Start(std::unique_ptr<Model> model,
                                              const EngineOptions& options) {
  if (Status status = CheckOptions(options.batching); !status.ok()) return status;
  auto state = std::make_unique<State>(std::move(model), options);
  Status status = CheckSamples(*state->model, options.sample_tolerance, &state->runner);
  if (!status.ok()) return status;
  State* const running = state.get();
  state->queue =
      std::make_unique<BatchingQueue>(options.batching, [running](Batch batch, Batch expired) {
        running->AnswerExpired(std::move(expired));
        if (!batch.empty()) running->RunAndAnswer(std::move(batch));
      });
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() { Stop(); }

const Manifest& Engine::manifest() const { return state_->model->manifest(); }

Limits Engine::limits() const {
  const Limits& limits = manifest().limits;
  const BatchingOptions& batching = state_->options.batching;
  return {.max_examples = static_cast<uint32_t>(
              std::min<uint64_t>(limits.max_examples, batching.max_batch_examples)),
          .max_ids = std::min(limits.max_ids, batching.max_batch_ids)};
}

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
    Status status = CheckRequest(*state_->model, request.get());
    if (!status.ok()) Count(state_->refused);
    if (status.ok() && state_->stopping) {
      status = {StatusCode::kUnavailable, "the server is shutting down"};
    }
    if (status.ok()) {
      batch.push_back(std::move(request));
    } else {
      request->answer(std::move(status), {});
    }
  }
  if (!batch.empty()) state_->RunAndAnswer(std::move(batch));
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
          .queued_examples = state_->queue->queued_examples()};
}

}  // namespace embershard
