#include "dense/trial.h"

#include <cstdint>
#include <span>
#include <vector>

namespace embershard {
namespace {

// Zeros in place of sequences, `ids` in each list.
class ZeroSequences {
 public:
  ZeroSequences(const Schema& schema, size_t requests, size_t examples, size_t ids) {
    for (const SequenceSpec& spec : schema.sequences) {
      const size_t lists = spec.scope == Scope::kRequest ? requests : examples;
      std::vector<int64_t>& offsets = offsets_.emplace_back();
      for (size_t list = 0; list <= lists; ++list) {
        offsets.push_back(static_cast<int64_t>(list * ids));
      }
      values_.emplace_back(lists * ids * static_cast<size_t>(spec.dim));
      inputs_.push_back(
          {.values = values_.back().data(), .ids = lists * ids, .offsets = offsets.data()});
    }
  }
  std::span<const SequenceInput> inputs() const { return inputs_; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<SequenceInput> inputs_;  // Views of the two above, whose elements stay put.
};

}  // namespace

Status TryOnce(DenseProgram& program, const Schema& schema) {
  constexpr size_t kRequests = 2;
  constexpr size_t kExamples = 3;
  std::vector<float> request_dense(kRequests * schema.request_dense_columns);
  std::vector<float> request_pooled(kRequests * schema.request_pooled_columns);
  std::vector<float> example_dense(kExamples * schema.example_dense_columns);
  std::vector<float> example_pooled(kExamples * schema.example_pooled_columns);
  const std::vector<int64_t> request_of_example = {0, 0, 1};
  const ZeroSequences sequences(schema, kRequests, kExamples, /*ids=*/2);
  std::vector<std::vector<float>> values(schema.outputs.size());
  std::vector<std::vector<float>*> outputs;
  for (std::vector<float>& output : values) outputs.push_back(&output);
  return program.Run({.requests = kRequests,
                      .examples = kExamples,
                      .request_dense = request_dense.data(),
                      .request_pooled = request_pooled.data(),
                      .example_dense = example_dense.data(),
                      .example_pooled = example_pooled.data(),
                      .request_of_example = request_of_example.data(),
                      .sequences = sequences.inputs()},
                     outputs);
}

}  // namespace embershard
