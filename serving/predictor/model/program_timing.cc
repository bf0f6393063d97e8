#include "model/program_timing.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>

#include "base/clock.h"

namespace embershard {
namespace {

constexpr double kSeconds = 0.25;
constexpr int kFewestTurns = 3;
constexpr int kMostTurns = 200;
constexpr float kValue = 0.125F;  // Of every input: no zeros, which a kernel may skip.

// The inputs of one sample's dense program, one request.
class Inputs {
 public:
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  Inputs(const Schema& schema, const SampleRequest& sample)
      : examples_(sample.num_examples),
        request_(std::max(schema.request_dense_columns, schema.request_pooled_columns), kValue),
        example_(examples_ * std::max(schema.example_dense_columns, schema.example_pooled_columns),
                 kValue),
        request_of_example_(examples_) {
    std::vector<std::vector<int64_t>> offsets;  // Of each sparse input.
    const auto* length = sample.lengths.data();
    for (const SparseInput& input : schema.sparse) {
      const int64_t most = input.max_ids > 0 ? input.max_ids : std::numeric_limits<int32_t>::max();
      std::vector<int64_t>& sums = offsets.emplace_back(1);
      for (size_t bags = input.scope == Scope::kRequest ? 1 : examples_; bags > 0; --bags) {
        sums.push_back(sums.back() + std::min<int64_t>(*length++, most));
      }
    }
    for (const SequenceSpec& sequence : schema.sequences) {
      offsets_.push_back(offsets[sequence.sparse_input]);
      const auto ids = static_cast<size_t>(offsets_.back().back());
      values_.emplace_back(ids * static_cast<size_t>(sequence.dim), kValue);
      sequences_.push_back(
          {.values = values_.back().data(), .ids = ids, .offsets = offsets_.back().data()});
    }
  }

  DenseProgramInputs views() {
    return {.requests = 1,
            .examples = examples_,
            .request_dense = request_.data(),
            .request_pooled = request_.data(),
            .example_dense = example_.data(),
            .example_pooled = example_.data(),
            .request_of_example = request_of_example_.data(),
            .sequences = sequences_};
  }

 private:
  const size_t examples_;
  std::vector<float> request_;  // Dense and pooled: programs only read.
  std::vector<float> example_;
  const std::vector<int64_t> request_of_example_;
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<std::vector<float>> values_;
  std::vector<SequenceInput> sequences_;
};

}  // namespace

Result<std::vector<double>> TimePrograms(const std::vector<std::unique_ptr<DenseProgram>>& programs,
                                         const Schema& schema,
                                         const std::vector<SampleRequest>& samples,
                                         ReadControl* control) {
  std::deque<Inputs> inputs;  // They hold pointers into themselves.
  for (const SampleRequest& sample : samples) inputs.emplace_back(schema, sample);
  std::vector<std::vector<float>> outputs;
  std::vector<double> least(programs.size(), std::numeric_limits<double>::infinity());
  const Clock::time_point start = Clock::now();
  const auto since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  for (int turn = 0; turn < kFewestTurns || (turn < kMostTurns && since(start) < kSeconds);
       ++turn) {
    for (size_t i = 0; i < programs.size(); ++i) {
      const Clock::time_point begin = Clock::now();
      for (Inputs& each : inputs) {
        RETURN_IF_ERROR(programs[i]->Run(each.views(), &outputs));
      }
      least[i] = std::min(least[i], since(begin));
    }
    if (control == nullptr) continue;
    RETURN_IF_ERROR(control->Advance());
  }
  return least;
}

}  // namespace embershard
