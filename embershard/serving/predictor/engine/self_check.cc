#include "engine/self_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "batching/request_validation.h"
#include "tensors/packed.h"

namespace embershard {
namespace {

// Factor of the tolerance for programs in bfloat16. Exporter and server add in different orders,
// and the last bit of a sum may decide how the next layer's input is rounded.
constexpr float kBfloat16Tolerances = 100;

// Factor if the model rounds at other places than the run that produced the samples' outputs.
constexpr float kBfloat16LayerTolerances = 1000;

std::string Text(float value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  return std::string(digits, end);
}

std::string SampleText(const Manifest& manifest, size_t index) {
  return manifest.samples + ": sample " + std::to_string(index) + ": ";
}

// A request made of views over `sample`, which must outlive it.
Result<std::unique_ptr<Request>> RequestOf(const Model& model, const SampleRequest& sample) {
  auto request = std::make_unique<Request>();
  request->num_examples = sample.num_examples;
  request->arrival = Clock::now();
  for (size_t i = 0; i < model.manifest().schema.outputs.size(); ++i) {
    request->outputs_wanted.push_back(i);
  }
  const PackedArrays packed = {.request_dense = ViewOf(sample.request_dense),
                               .example_dense = ViewOf(sample.example_dense),
                               .lengths = ViewOf(sample.lengths),
                               .values = ViewOf(sample.values),
                               .weights = ViewOf(sample.weights)};
  const Manifest& manifest = model.manifest();
  RETURN_IF_ERROR(SplitPacked(manifest.schema, manifest.limits, packed, request.get()));
  RETURN_IF_ERROR(CheckRequest(model, manifest.limits, request.get()));
  return request;
}

Status Compare(const OutputSpec& output, const std::vector<float>& expected,
               const std::vector<float>& got, float tolerance) {
  if (expected.size() != got.size()) {
    return BadPackage("output '", output.name, "': expected ", expected.size(), " values, got ",
                      got.size());
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const float allowed = tolerance * std::max(1.0F, std::abs(expected[i]));
    if (std::abs(got[i] - expected[i]) <= allowed) continue;  // False for NaN.
    return BadPackage("output '", output.name, "' at example ", i / output.width, ": expected ",
                      Text(expected[i]), ", got ", Text(got[i]), " (tolerance ", Text(tolerance),
                      ")");
  }
  return {};
}

struct Check {
  float tolerance;
  BatchExecutor* executor;
  Slot* buffers;
  ReadControl* control;
};

// Runs samples [first, first + requests.size()) as one batch, starting again after the last sample.
Status CheckBatch(const Model& model, std::span<const std::unique_ptr<Request>> requests,
                  size_t first, const Check& check) {
  const Manifest& manifest = model.manifest();
  BatchTimes times;
  ASSIGN_OR_RETURN(const BatchExecutor::Responses responses,
                   check.executor->RunOnce(requests, check.buffers, &times));
  if (check.control != nullptr) RETURN_IF_ERROR(check.control->Advance());
  const char* const how = requests.size() > 1 ? "merged with the others: " : "";
  for (size_t r = 0; r < requests.size(); ++r) {
    const size_t index = (first + r) % model.samples().size();
    const SampleRequest& sample = model.samples()[index];
    if (sample.outputs.size() != manifest.schema.outputs.size()) {
      return BadPackage(SampleText(manifest, index), "expected ", manifest.schema.outputs.size(),
                        " outputs, got ", sample.outputs.size());
    }
    const Result<Response>& response = responses[r];
    if (!response.ok()) {
      return BadPackage(SampleText(manifest, index), how, response.status().message());
    }
    for (const ResponseOutput& output : response->outputs) {
      const OutputSpec& spec = manifest.schema.outputs[output.output];
      Status status = Compare(spec, sample.outputs[output.output], output.values, check.tolerance);
      if (status.ok()) continue;
      return BadPackage(SampleText(manifest, index), how, status.message());
    }
  }
  return {};
}

using Requests = std::vector<std::unique_ptr<Request>>;

Result<std::unique_ptr<Request>> RequestOfSample(const Model& model, size_t index) {
  Result<std::unique_ptr<Request>> request = RequestOf(model, model.samples()[index]);
  if (request.ok()) return request;
  return BadPackage(SampleText(model.manifest(), index), request.status().message());
}

// Views over all samples, repeated to fill `most`.
Result<Requests> RequestsOfSamples(const Model& model, const ChunkBudget& most) {
  Requests requests;
  uint64_t examples = 0;
  uint64_t ids = 0;
  const size_t samples = model.samples().size();
  while (samples > 0) {
    ASSIGN_OR_RETURN(std::unique_ptr<Request> next,
                     RequestOfSample(model, requests.size() % samples));
    examples += std::max<uint64_t>(next->num_examples, 1);
    ids += next->num_ids;
    const bool fits = examples <= most.examples && ids <= most.ids;
    if (!fits && requests.size() >= samples) break;
    requests.push_back(std::move(next));
  }
  return requests;
}

float AllowedOf(const Model& model, float tolerance) {
  if (model.rounds_elsewhere()) return tolerance * kBfloat16LayerTolerances;
  const bool bfloat16 = model.manifest().program.type == DenseType::kBfloat16;
  return bfloat16 ? tolerance * kBfloat16Tolerances : tolerance;
}

}  // namespace

Status CheckSamples(const Model& model, float tolerance, BatchExecutor* executor, Slot* buffers,
                    ReadControl* control) {
  ASSIGN_OR_RETURN(const Requests requests, RequestsOfSamples(model, {.examples = 0, .ids = 0}));
  const std::span<const std::unique_ptr<Request>> all(requests);
  const Check check = {.tolerance = AllowedOf(model, tolerance),
                       .executor = executor,
                       .buffers = buffers,
                       .control = control};
  for (size_t i = 0; i < all.size(); ++i) {
    RETURN_IF_ERROR(CheckBatch(model, all.subspan(i, 1), i, check));
  }
  if (all.size() < 2) return {};
  return CheckBatch(model, all, 0, check);
}

Status CheckFullBatch(const Model& model, const ChunkBudget& most, float tolerance,
                      BatchExecutor* executor, Slot* buffers, ReadControl* control) {
  ASSIGN_OR_RETURN(const Requests requests, RequestsOfSamples(model, most));
  if (requests.empty()) return {};
  return CheckBatch(model, requests, 0,
                    {.tolerance = AllowedOf(model, tolerance),
                     .executor = executor,
                     .buffers = buffers,
                     .control = control});
}

}  // namespace embershard
