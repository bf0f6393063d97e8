#include "model/program_choice.h"

#include <gtest/gtest.h>

#include <utility>

namespace embershard {
namespace {

const ProgramHost kHost = {.torch = "2.13.0", .instructions = {"avx2", "fma", "sse2"}};

CompiledProgramSpec Compiled(const std::string& target, const std::string& torch,
                             const std::vector<std::string>& instructions) {
  return {.target = target,
          .type = DenseType::kBfloat16,
          .torch = torch,
          .instructions = instructions,
          .file = "programs/" + target + ".pt2"};
}

Manifest ManifestWith(const std::vector<CompiledProgramSpec>& compiled) {
  Manifest manifest;
  manifest.program = {.type = DenseType::kFloat32, .file = "programs/dense.pt"};
  manifest.compiled_programs = compiled;
  return manifest;
}

// The one program that is left to choose.
ProgramChoice Only(const Result<ProgramChoices>& choices) {
  EXPECT_TRUE(choices.ok()) << choices.status().message();
  EXPECT_EQ(choices->programs.size(), 1);
  return choices->programs[0];
}

std::vector<std::string> Targets(const ProgramChoices& choices) {
  std::vector<std::string> targets;
  for (const ProgramChoice& each : choices.programs) targets.push_back(each.target);
  return targets;
}

TEST(ProgramChoice, IsTorchScriptIfNothingIsCompiled) {
  for (const char* target : {"", "cpu"}) {
    const ProgramChoice choice = Only(ChoosePrograms(ManifestWith({}), target, kHost));
    EXPECT_FALSE(choice.compiled);
    EXPECT_FALSE(choice.float32_layers);
    EXPECT_EQ(choice.target, "cpu");
    EXPECT_EQ(choice.file, "programs/dense.pt");
    EXPECT_EQ(choice.type, DenseType::kFloat32);
  }
}

TEST(ProgramChoice, IsFirstTheFirstCompiledOneThatFitsThenTorchScript) {
  const Manifest manifest = ManifestWith(
      {Compiled("wide", "2.13.0", {"avx512f"}), Compiled("old", "2.12.1", {"avx2"}),
       Compiled("good", "2.13.0", {"avx2", "fma"}), Compiled("good_too", "2.13.0", {"avx2"})});
  const auto choices = ChoosePrograms(manifest, "", kHost);
  ASSERT_TRUE(choices.ok()) << choices.status().message();
  EXPECT_EQ(Targets(*choices), (std::vector<std::string>{"good", "cpu"}));
  EXPECT_TRUE(choices->programs[0].compiled);
  EXPECT_EQ(choices->programs[0].file, "programs/good.pt2");
  EXPECT_EQ(choices->programs[0].type, DenseType::kBfloat16);
  EXPECT_EQ(choices->note, "");
}

TEST(ProgramChoice, IsTheOneAskedFor) {
  const Manifest manifest =
      ManifestWith({Compiled("one", "2.13.0", {"avx2"}), Compiled("other", "2.13.0", {"avx2"})});
  EXPECT_EQ(Only(ChoosePrograms(manifest, "other", kHost)).file, "programs/other.pt2");
  EXPECT_EQ(Only(ChoosePrograms(manifest, "cpu", kHost)).file, "programs/dense.pt");
  EXPECT_TRUE(Only(ChoosePrograms(manifest, "cpu-fp32", kHost)).float32_layers);
}

TEST(ProgramChoice, RunsLayersInFloat32WithoutBfloat16OfTheProcessor) {
  Manifest manifest = ManifestWith({});
  manifest.program.type = DenseType::kBfloat16;
  const auto without = ChoosePrograms(manifest, "", kHost);
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(Targets(*without), (std::vector<std::string>{"cpu-fp32", "cpu"}));
  EXPECT_TRUE(without->programs[0].float32_layers);
  EXPECT_FALSE(without->programs[1].float32_layers);
  EXPECT_EQ(without->note, "the processor does not multiply bfloat16");

  ProgramHost with = kHost;
  with.instructions.insert("avx512_bf16");
  EXPECT_EQ(Only(ChoosePrograms(manifest, "", with)).target, "cpu");
  EXPECT_EQ(Only(ChoosePrograms(manifest, "cpu", kHost)).target, "cpu");
}

TEST(ProgramChoice, IsTorchScriptOnAProcessorThatNoCompiledOneFits) {
  const auto choices =
      ChoosePrograms(ManifestWith({Compiled("wide", "2.13.0", {"avx2", "amx_tile"})}), "", kHost);
  EXPECT_EQ(Only(choices).target, "cpu");
  EXPECT_EQ(choices->note,
            "programs/wide.pt2: instructions: expected a processor with amx_tile, got one without");
}

TEST(ProgramChoice, RefusesAnotherProcessorForATargetAskedFor) {
  const Status status =
      ChoosePrograms(ManifestWith({Compiled("wide", "2.13.0", {"amx_tile"})}), "wide", kHost)
          .status();
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message(),
            "programs/wide.pt2: instructions: expected a processor with amx_tile, got one without; "
            "compile the package here (`embershard compile`), or leave dense_program out");
}

TEST(ProgramChoice, RefusesAnotherTorchForATargetAskedFor) {
  const Status status =
      ChoosePrograms(ManifestWith({Compiled("old", "2.12.1", {"avx2"})}), "old", kHost).status();
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message().substr(0, 84),
            "programs/old.pt2: torch: expected version 2.12.1, which compiled it, got 2.13.0; com");
}

TEST(ProgramChoice, RefusesATargetThatIsNotThere) {
  const Status status =
      ChoosePrograms(ManifestWith({Compiled("one", "2.13.0", {"avx2"})}), "two", kHost).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "dense_program: expected one of cpu, cpu-fp32, one, got 'two'");
}

TEST(FastestProgram, IsTheFirstUnlessAnotherIsFasterByATwentieth) {
  EXPECT_EQ(FastestProgram({1.0}), 0);
  EXPECT_EQ(FastestProgram({1.0, 0.96}), 0);
  EXPECT_EQ(FastestProgram({1.0, 0.94}), 1);
  EXPECT_EQ(FastestProgram({1.0, 0.94, 0.5}), 2);
}

TEST(ComparedText, NamesTheTimesOfTheOthers) {
  const ProgramChoices choices = {
      .programs = {{.target = "cpu-fp32", .file = {}}, {.target = "cpu", .file = {}}}, .note = {}};
  EXPECT_EQ(ComparedText(choices.programs, {0.000413, 0.00053}, 0),
            "samples take 0.413 ms, with cpu 0.53 ms");
}

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
