#include "engine/batch_executor.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "batching/builder.h"

namespace embershard {
namespace {

Status CheckOutputs(const Schema& schema, const Slot& slot) {
  if (slot.outputs.size() != schema.outputs.size()) {
    return Internal("the model gave ", slot.outputs.size(), " outputs, expected ",
                    schema.outputs.size());
  }
  for (size_t i = 0; i < schema.outputs.size(); ++i) {
    const OutputSpec& output = schema.outputs[i];
    const size_t rows = output.scope == Scope::kRequest ? slot.requests : slot.examples;
    if (slot.outputs[i].size() == rows * output.width) continue;
    return Internal("output '", output.name, "': the model gave ", slot.outputs[i].size(),
                    " values, expected ", rows * output.width);
  }
  return {};
}

// Checks that all outputs are finite. A request whose inputs make the model overflow must not fail
// its neighbours. `first_example`: a chunk's first example in the whole request.
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

// Drops ids in request scope, which the first chunk has counted.
void DropRequestIds(const Schema& schema, std::vector<UnknownIdCount>* unknown_ids) {
  std::erase_if(*unknown_ids, [&schema](const UnknownIdCount& unknown) {
    return schema.sparse[unknown.sparse_input].scope == Scope::kRequest;
  });
}

// True if no later batch can run, so that halves of this one need no rerun.
bool IsLost(const Status& status) { return status.reason() == StatusReason::kDeviceLost; }

}  // namespace

class BatchExecutor::Halving {
 public:
  Halving(BatchExecutor* executor, Requests requests, const Status& failed, const IsWanted& wanted,
          Slot* buffers, BatchTimes* times)
      : executor_(executor),
        requests_(requests),
        wanted_(wanted),
        buffers_(buffers),
        times_(times),
        responses_(requests.size(), failed) {}

  Responses Run() {
    Split(0, requests_.size());
    return std::move(responses_);
  }

 private:
  void Split(size_t first, size_t count) {
    if (count < 2) return;
    RunPart(first, count / 2);
    RunPart(first + count / 2, count - count / 2);
  }

  void RunPart(size_t first, size_t count) {
    while (count > 0 && !wanted_(*requests_[first])) {
      responses_[first] = EarlyCompletion();
      ++first;
      --count;
    }
    while (count > 0 && !wanted_(*requests_[first + count - 1])) {
      responses_[first + count - 1] = EarlyCompletion();
      --count;
    }
    if (count == 0 || IsUsedUp()) return;
    BatchTimes times;
    Result<Responses> part = executor_->RunOnce(requests_.subspan(first, count), buffers_, &times);
    ++times_->reruns;
    times_->lookup_us += times.lookup_us;
    times_->dense_us += times.dense_us;
    if (part.ok()) succeeded_ = true;
    for (size_t i = 0; i < count; ++i) {
      responses_[first + i] = part.ok() ? std::move((*part)[i]) : Result<Response>(part.status());
    }
    if (!part.ok() && !IsLost(part.status())) Split(first, count);
  }

  bool IsUsedUp() const { return times_->reruns >= (succeeded_ ? kRerunsMax : kRerunsInVain); }

  // This status is never sent.
  static Status EarlyCompletion() {
    return {StatusCode::kDeadlineExceeded, "the deadline passed while the request ran"};
  }

  BatchExecutor* const executor_;
  const Requests requests_;
  const IsWanted& wanted_;
  Slot* const buffers_;
  BatchTimes* const times_;
  Responses responses_;
  bool succeeded_ = false;
};

BatchExecutor::BatchExecutor(Model* model) : model_(model), running_(model->slots()) {}

Result<BatchExecutor::Responses> BatchExecutor::Run(Requests requests, const IsWanted& wanted,
                                                    Slot* buffers, BatchTimes* times) {
  Result<Responses> responses = RunOnce(requests, buffers, times);
  if (responses.ok() || IsLost(responses.status()) || requests.size() < 2) return responses;
  return Halving(this, requests, responses.status(), wanted, buffers, times).Run();
}

Result<BatchExecutor::Responses> BatchExecutor::RunOnce(Requests requests, Slot* buffers,
                                                        BatchTimes* times) {
  const MutexLock lock(running_[buffers->number]);
  *times = {.start = Clock::now()};
  return Guarded("the batch failed: ", [&] { return RunIn(requests, buffers, times); });
}

Result<BatchExecutor::Responses> BatchExecutor::RunIn(Requests requests, Slot* buffers,
                                                      BatchTimes* times) {
  const Schema& schema = model_->manifest().schema;
  Slot& slot = *buffers;
  std::vector<std::vector<UnknownIdCount>> unknown_ids;
  BuildBatch(*model_, requests, &slot, &unknown_ids);
  slot.lookup_us = slot.dense_us = 0;
  const Status ran = model_->Run(slot);
  times->lookup_us = slot.lookup_us;
  times->dense_us = slot.dense_us;
  if (!ran.ok()) return ran;
  RETURN_IF_ERROR(CheckOutputs(schema, slot));

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
  Responses checked;
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
