#include "engine/batch_runner.h"

#include <exception>
#include <string>
#include <utility>

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

}  // namespace

Result<std::vector<Response>> BatchRunner::Run(std::span<const std::unique_ptr<Request>> requests) {
  const std::lock_guard lock(mutex_);
  try {
    return RunUnguarded(requests);
  } catch (const std::exception& error) {
    return Internal(std::string("the batch failed: ") + error.what());
  }
}

Result<std::vector<Response>> BatchRunner::RunUnguarded(
    std::span<const std::unique_ptr<Request>> requests) {
  const Clock::time_point start = Clock::now();
  const Schema& schema = model_->manifest().schema;
  BuildBatch(*model_, requests, &slot_, &unknown_ids_);
  if (Status status = model_->Run(slot_); !status.ok()) return status;
  if (Status status = CheckOutputs(schema, slot_); !status.ok()) return status;

  std::vector<Response> responses(requests.size());
  size_t first_example = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    responses[i].outputs = CutOutputs(schema, slot_, *requests[i], i, first_example);
    responses[i].unknown_ids = std::move(unknown_ids_[i]);
    first_example += requests[i]->num_examples;
  }
  const Clock::time_point end = Clock::now();
  for (size_t i = 0; i < requests.size(); ++i) {
    responses[i].timing = {.queue_us = MicrosecondsBetween(requests[i]->arrival, start),
                           .lookup_us = slot_.lookup_us,
                           .dense_us = slot_.dense_us,
                           .total_us = MicrosecondsBetween(requests[i]->arrival, end)};
  }
  return responses;
}

}  // namespace embershard
