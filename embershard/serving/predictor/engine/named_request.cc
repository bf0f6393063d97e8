#include "engine/named_request.h"

#include <chrono>
#include <cstddef>
#include <future>
#include <limits>
#include <utility>

#include "base/unaligned.h"
#include "batching/request_validation.h"
#include "tensors/find_names.h"

namespace embershard {
namespace {

constexpr std::chrono::milliseconds kEnginesAnswer{100};  // Latest answer after the deadline.

struct KeptLists {
  std::vector<int32_t> lengths;
  std::vector<int64_t> values;
  std::vector<float> weights;
};

// The data under a request's views, in the caller's order.
struct Kept {
  std::vector<std::vector<float>> dense;
  std::vector<KeptLists> sparse;
};

template <class T>
uint64_t BytesOf(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

Status CheckWeights(const NamedSparse& input) {
  if (input.weights.empty()) return {};
  if (input.weights.size() != input.lists.size()) {
    return InvalidArgument(Feature(input.name), "expected weights for ", input.lists.size(),
                           " lists, got them for ", input.weights.size());
  }
  for (size_t i = 0; i < input.lists.size(); ++i) {
    if (input.weights[i].size() == input.lists[i].size()) continue;
    return InvalidArgument(Feature(input.name), "list ", i, ": expected ", input.lists[i].size(),
                           " weights, one for each id, got ", input.weights[i].size());
  }
  return {};
}

Result<KeptLists> Flatten(const NamedSparse& input) {
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  RETURN_IF_ERROR(CheckWeights(input));
  KeptLists lists;
  for (const std::vector<int64_t>& ids : input.lists) {
    if (ids.size() > kMost) {
      return InvalidArgument(Feature(input.name), "expected at most ", kMost,
                             " ids in a list, got ", ids.size());
    }
    lists.lengths.push_back(static_cast<int32_t>(ids.size()));
    lists.values.insert(lists.values.end(), ids.begin(), ids.end());
  }
  for (const std::vector<float>& weights : input.weights) {
    lists.weights.insert(lists.weights.end(), weights.begin(), weights.end());
  }
  return lists;
}

}  // namespace

Result<std::unique_ptr<Request>> MakeRequest(const Engine& engine, const NamedInputs& inputs) {
  const Schema& schema = engine.manifest().schema;
  const auto kept = std::make_shared<Kept>();
  auto request = std::make_unique<Request>();
  request->arrival = Clock::now();  // Before copying, which counts as part of the timeout.
  request->schema = schema.fingerprint;
  ASSIGN_OR_RETURN(request->outputs_wanted, FindOutputs(schema, engine.names(), inputs.outputs));
  request->num_examples = inputs.num_examples;
  request->held_bytes = sizeof(Request) + sizeof(Kept);
  request->dense.resize(schema.dense.size());
  std::vector<bool> seen(schema.dense.size());
  for (const NamedDense& input : inputs.dense) {
    ASSIGN_OR_RETURN(const size_t position, FindDense(schema, engine.names(), input.name));
    RETURN_IF_ERROR(Once(input.name, position, &seen));
    const std::vector<float>& values = kept->dense.emplace_back(input.values);
    request->dense[position].values = ViewOf(values);
    request->held_bytes += BytesOf(values);
  }
  request->sparse.resize(schema.sparse.size());
  seen.assign(schema.sparse.size(), false);
  for (const NamedSparse& input : inputs.sparse) {
    ASSIGN_OR_RETURN(const size_t position, FindSparse(schema, engine.names(), input.name));
    RETURN_IF_ERROR(Once(input.name, position, &seen));
    KeptLists& lists = kept->sparse.emplace_back();
    ASSIGN_OR_RETURN(lists, Flatten(input));
    SparseView& view = request->sparse[position];
    view.lengths = ViewOf(lists.lengths);
    view.values = ViewOf(lists.values);
    view.weights = ViewOf(lists.weights);
    request->held_bytes += BytesOf(lists.lengths) + BytesOf(lists.values) + BytesOf(lists.weights);
  }
  request->bytes = kept;
  return request;
}

Result<NamedOutputs> PredictNamed(Engine* engine, const NamedInputs& inputs,
                                  Clock::duration timeout) {
  ASSIGN_OR_RETURN(std::unique_ptr<Request> request, MakeRequest(*engine, inputs));
  if (timeout < Clock::time_point::max() - request->arrival) {
    request->deadline = request->arrival + timeout;
  }
  using Answer = std::pair<Status, Response>;
  const auto promise = std::make_shared<std::promise<Answer>>();
  request->answer = [promise](Status status, Response response) {
    promise->set_value({std::move(status), std::move(response)});
  };
  std::future<Answer> future = promise->get_future();
  const Clock::time_point deadline = request->deadline;
  engine->Predict(std::move(request));
  // The engine answers at the deadline with a reason, unless its threads do not run.
  if (deadline < Clock::time_point::max() - kEnginesAnswer &&
      future.wait_until(deadline + kEnginesAnswer) == std::future_status::timeout) {
    return Status(StatusCode::kDeadlineExceeded,
                  "the deadline passed, and the engine has not answered");
  }
  Answer answer = future.get();
  if (!answer.first.ok()) return answer.first;
  NamedOutputs outputs;
  for (ResponseOutput& output : answer.second.outputs) {
    outputs[engine->manifest().schema.outputs[output.output].name] = std::move(output.values);
  }
  return outputs;
}

}  // namespace embershard
