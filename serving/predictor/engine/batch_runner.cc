#include "engine/batch_runner.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/out_of_memory.h"

namespace embershard {
namespace {

// Whether the model filled what the answers are cut from.
Status CheckOutputs(const Schema& schema, const Slot& slot) {
  if (slot.outputs.size() != schema.outputs.size()) {
    return Internal("the model gave " + std::to_string(slot.outputs.size()) +
                    " outputs, expected " + std::to_string(schema.outputs.size()));
  }
  for (size_t i = 0; i < schema.outputs.size(); ++i) {
    const OutputSpec& output = schema.outputs[i];
    const size_t rows = output.scope == Scope::kRequest ? slot.requests : slot.examples;
    if (slot.outputs[i].values.size() == rows * output.width) continue;
    return Internal("output '" + output.name + "': the model gave " +
                    std::to_string(slot.outputs[i].values.size()) + " values, expected " +
                    std::to_string(rows * output.width));
  }
  return {};
}

// Whether every score means something. Numbers so large that the model overflows are no fault
// of the request's neighbours. `first_example`: where a piece begins in its request.
Status CheckFinite(const Schema& schema, const Response& response, size_t first_example) {
  for (const ResponseOutput& output : response.outputs) {
    const std::vector<float>& values = output.values;
    const auto bad = std::find_if(values.begin(), values.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad == values.end()) continue;
    const OutputSpec& spec = schema.outputs[output.output];
    std::string where = "output '" + spec.name + "'";
    if (spec.scope == Scope::kExample) {
      const auto position = static_cast<size_t>(bad - values.begin());
      where += " at example " + std::to_string(first_example + position / spec.width);
    }
    return {StatusCode::kInternal, where + " is not finite", StatusReason::kNotFinite};
  }
  return {};
}

// Those of the request scope, which the first piece of a request has counted.
void DropRequestIds(const Schema& schema, std::vector<UnknownIdCount>* unknown_ids) {
  std::erase_if(*unknown_ids, [&schema](const UnknownIdCount& unknown) {
    return schema.sparse[unknown.sparse_input].scope == Scope::kRequest;
  });
}

}  // namespace

// A place that is nobody else's.
class BatchRunner::Taken {
 public:
  explicit Taken(BatchRunner* runner) : runner_(runner) {
    const MutexLock lock(runner_->mutex_);
    while (runner_->free_.empty()) runner_->freed_.Wait(runner_->mutex_);
    const auto taken = runner_->unused_ > 0 ? runner_->free_.begin() : runner_->free_.end() - 1;
    if (runner_->unused_ > 0) --runner_->unused_;
    place_ = *taken;
    runner_->free_.erase(taken);
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() {
    {
      const MutexLock lock(runner_->mutex_);
      runner_->free_.push_back(place_);
    }
    runner_->freed_.NotifyOne();
  }

  Place* place() const { return place_; }

 private:
  BatchRunner* const runner_;
  Place* place_ = nullptr;
};

BatchRunner::BatchRunner(Model* model)
    : model_(model), places_(model->slots()), unused_(places_.size()) {
  for (size_t number = 0; number < places_.size(); ++number) {
    places_[number].slot.number = number;
    free_.push_back(&places_[number]);
  }
}

Result<std::vector<Result<Response>>> BatchRunner::Run(
    std::span<const std::unique_ptr<Request>> requests, BatchTimes* times) {
  const Taken taken(this);
  *times = {.start = Clock::now()};
  try {
    return RunIn(taken.place(), requests, times);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& error) {
    return Internal(std::string("the batch failed: ") + error.what());
  }
}

Result<std::vector<Result<Response>>> BatchRunner::RunIn(
    Place* place, std::span<const std::unique_ptr<Request>> requests, BatchTimes* times) {
  const Schema& schema = model_->manifest().schema;
  auto& [slot, unknown_ids] = *place;
  BuildBatch(*model_, requests, &slot, &unknown_ids);
  slot.lookup_us = slot.dense_us = 0;
  const Status ran = model_->Run(slot);
  times->lookup_us = slot.lookup_us;
  times->dense_us = slot.dense_us;
  if (!ran.ok()) return ran;
  if (Status status = CheckOutputs(schema, slot); !status.ok()) return status;

  std::vector<Response> responses(requests.size());
  size_t first_example = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    responses[i].outputs = CutOutputs(schema, slot, *requests[i], i, first_example);
    responses[i].unknown_ids = std::move(unknown_ids[i]);
    if (requests[i]->first_example > 0) DropRequestIds(schema, &responses[i].unknown_ids);
    first_example += requests[i]->num_examples;
  }
  const Clock::time_point end = Clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    responses[i].timing = {.queue_us = MicrosecondsBetween(requests[i]->arrival, times->start),
                           .lookup_us = slot.lookup_us,
                           .dense_us = slot.dense_us,
                           .total_us = MicrosecondsBetween(requests[i]->arrival, end)};
  }
  std::vector<Result<Response>> checked;
  checked.reserve(responses.size());
  for (size_t i = 0; i < responses.size(); ++i) {
    Status status = CheckFinite(schema, responses[i], requests[i]->first_example);
    if (status.ok()) {
      checked.emplace_back(std::move(responses[i]));
    } else {
      checked.emplace_back(std::move(status));
    }
  }
  return checked;
}

}  // namespace embershard
