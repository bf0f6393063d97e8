#include "model/program_timing.h"

#include <gtest/gtest.h>

#include <utility>

namespace embershard {
namespace {

// Sizes of a call: requests, examples, ids of the sequence, last offset.
struct Call {
  size_t requests, examples, ids;
  std::vector<int64_t> offsets;
  bool operator==(const Call&) const = default;
};

class FakeProgram final : public DenseProgram {
 public:
  FakeProgram(std::vector<Call>* calls, Status status)
      : calls_(calls), status_(std::move(status)) {}

  Status Run(const DenseProgramInputs& inputs, std::vector<std::vector<float>>*) override {
    const SequenceInput& sequence = inputs.sequences[0];
    calls_->push_back({inputs.requests,
                       inputs.examples,
                       sequence.ids,
                       {sequence.offsets, sequence.offsets + inputs.examples + 1}});
    return status_;
  }

 private:
  std::vector<Call>* const calls_;
  const Status status_;
};

// A list of the request, and one of each example, cut to 3 ids, whose vectors are a sequence.
Schema SchemaOfTwoLists() {
  Schema schema;
  schema.sparse.resize(2);
  schema.sparse[0].scope = Scope::kRequest;
  schema.sparse[1].max_ids = 3;
  schema.sequences = {{.sparse_input = 1, .table = 0, .scope = Scope::kExample, .dim = 2}};
  schema.outputs.resize(1);
  schema.example_dense_columns = 1;
  return schema;
}

std::vector<SampleRequest> TwoSamples() {
  std::vector<SampleRequest> samples(2);
  samples[0].num_examples = 1;
  samples[0].lengths = {9, 2};
  samples[1].num_examples = 2;
  samples[1].lengths = {9, 5, 1};
  return samples;
}

TEST(TimePrograms, RunsEachProgramOverTheSizesOfTheSamplesInTurns) {
  std::vector<Call> calls;
  std::vector<std::unique_ptr<DenseProgram>> programs;
  programs.push_back(std::make_unique<FakeProgram>(&calls, Status()));
  programs.push_back(std::make_unique<FakeProgram>(&calls, Status()));
  ReadControl control(0);
  const auto seconds = TimePrograms(programs, SchemaOfTwoLists(), TwoSamples(), &control);
  ASSERT_TRUE(seconds.ok()) << seconds.status().message();
  ASSERT_EQ(seconds->size(), 2);
  for (const double each : *seconds) EXPECT_GE(each, 0);
  ASSERT_GE(control.steps(), 3);
  ASSERT_EQ(calls.size(), 4 * control.steps());
  const Call first = {1, 1, 2, {0, 2}};
  const Call second = {1, 2, 4, {0, 3, 4}};
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i], i % 2 == 0 ? first : second);
}

TEST(TimePrograms, FailsAsAProgramDoes) {
  std::vector<Call> calls;
  std::vector<std::unique_ptr<DenseProgram>> programs;
  programs.push_back(std::make_unique<FakeProgram>(&calls, Internal("no such operator")));
  const auto seconds = TimePrograms(programs, SchemaOfTwoLists(), TwoSamples(), nullptr);
  EXPECT_EQ(seconds.status().message(), "no such operator");
}

TEST(TimePrograms, EndsWithAStoppedLoad) {
  std::vector<Call> calls;
  std::vector<std::unique_ptr<DenseProgram>> programs;
  programs.push_back(std::make_unique<FakeProgram>(&calls, Status()));
  ReadControl control(0);
  control.Stop();
  EXPECT_FALSE(TimePrograms(programs, SchemaOfTwoLists(), TwoSamples(), &control).ok());
  EXPECT_EQ(calls.size(), 2);
}

}  // namespace
}  // namespace embershard
