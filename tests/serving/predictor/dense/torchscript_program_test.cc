#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "dense/dense_program.h"
#include "testing/paths.h"

namespace embershard {
namespace {

// Programs and what they compute: ../make_test_program.py.
ProgramBytes ProgramFile(const std::string& name) {
  const auto path = testing::TestPrograms() / (name + ".pt");
  std::ifstream file(path, std::ios::binary);
  return {.name = "programs/" + name + ".pt",
          .bytes = std::string(std::istreambuf_iterator<char>(file), {})};
}

Schema SchemaOfPrograms() {
  Schema schema;
  schema.outputs = {{.name = "score", .scope = Scope::kExample, .shape = {}, .width = 1},
                    {.name = "pair", .scope = Scope::kExample, .shape = {2}, .width = 2},
                    {.name = "user", .scope = Scope::kRequest, .shape = {2}, .width = 2}};
  schema.request_dense_columns = 1;
  schema.example_dense_columns = 1;
  schema.request_pooled_columns = 2;
  schema.example_pooled_columns = 3;
  return schema;
}

// Two requests of two and one examples.
struct ThreeExamples {
  std::vector<float> request_dense = {100, 200};
  std::vector<float> request_pooled = {1, 2, 3, 4};
  std::vector<float> example_dense = {1, 2, 3};
  std::vector<float> example_pooled = {0.5F, 0.25F, 0, 5, 6, 7, 8, 9, 10};
  std::vector<int64_t> request_of_example = {0, 0, 1};

  DenseProgramInputs inputs() {
    return {.requests = 2,
            .examples = 3,
            .request_dense = request_dense.data(),
            .request_pooled = request_pooled.data(),
            .example_dense = example_dense.data(),
            .example_pooled = example_pooled.data(),
            .request_of_example = request_of_example.data()};
  }
};

struct Outputs {
  std::vector<float> score;
  std::vector<float> pair;
  std::vector<float> user;
};

Status RunProgram(DenseProgram& program, const DenseProgramInputs& inputs, Outputs* outputs) {
  std::vector<std::vector<float>> all;
  RETURN_IF_ERROR(program.Run(inputs, &all));
  EXPECT_EQ(all.size(), 3);
  *outputs = {.score = all[0], .pair = all[1], .user = all[2]};
  return {};
}

Status LoadStatus(const std::string& name) {
  return LoadTorchScriptProgram(ProgramFile(name), SchemaOfPrograms(), {.threads = 1}).status();
}

TEST(TorchScriptProgram, WritesEachOutputInTheOrderOfTheSchema) {
  auto program = LoadTorchScriptProgram(ProgramFile("sound"), SchemaOfPrograms(), {.threads = 1});
  ASSERT_TRUE(program.ok()) << program.status().message();
  ThreeExamples batch;
  Outputs outputs;
  const Status status = RunProgram(**program, batch.inputs(), &outputs);
  ASSERT_TRUE(status.ok()) << status.message();
  // Requests give 103 and 207; examples 10.75, 20 + 18 and 30 + 27.
  EXPECT_EQ(outputs.score, (std::vector<float>{113.75F, 141, 264}));
  EXPECT_EQ(outputs.pair, (std::vector<float>{0.5F, 0.25F, 5, 6, 8, 9}));
  EXPECT_EQ(outputs.user, (std::vector<float>{2, 4, 6, 8}));
}

TEST(TorchScriptProgram, TakesBatchesOfEverySizeOneAfterAnother) {
  auto program = LoadTorchScriptProgram(ProgramFile("sound"), SchemaOfPrograms(), {.threads = 1});
  ASSERT_TRUE(program.ok()) << program.status().message();
  for (const size_t examples : {1, 7, 1000, 2, 1}) {
    std::vector<float> request = {1, 1};
    std::vector<float> dense(examples, 0.5F);
    std::vector<float> pooled(examples * 3, 1);
    const std::vector<int64_t> request_of_example(examples, 0);
    Outputs outputs;
    const Status status = RunProgram(**program,
                                     {.requests = 1,
                                      .examples = examples,
                                      .request_dense = request.data(),
                                      .request_pooled = request.data(),
                                      .example_dense = dense.data(),
                                      .example_pooled = pooled.data(),
                                      .request_of_example = request_of_example.data()},
                                     &outputs);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(outputs.score, std::vector<float>(examples, 11));
    EXPECT_EQ(outputs.user, (std::vector<float>{2, 2}));
  }
}

TEST(TorchScriptProgram, InputsOfNoWidthMayBeNull) {
  Schema schema = SchemaOfPrograms();
  schema.request_dense_columns = 0;
  schema.example_dense_columns = 0;
  auto program = LoadTorchScriptProgram(ProgramFile("sound"), schema, {.threads = 1});
  ASSERT_TRUE(program.ok()) << program.status().message();
  ThreeExamples batch;
  DenseProgramInputs inputs = batch.inputs();
  inputs.request_dense = nullptr;
  inputs.example_dense = nullptr;
  Outputs outputs;
  const Status status = RunProgram(**program, inputs, &outputs);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(outputs.score, (std::vector<float>{3.75F, 21, 34}));
}

Schema SchemaWithSequences() {
  Schema schema = SchemaOfPrograms();
  schema.sequences = {{.sparse_input = 0, .table = 0, .scope = Scope::kExample, .dim = 2},
                      {.sparse_input = 1, .table = 1, .scope = Scope::kRequest, .dim = 2}};
  return schema;
}

TEST(TorchScriptProgram, PassesValuesAndOffsetsOfSequencesAfterOtherInputsOfTheirScope) {
  auto program =
      LoadTorchScriptProgram(ProgramFile("sequences"), SchemaWithSequences(), {.threads = 1});
  ASSERT_TRUE(program.ok()) << program.status().message();
  ThreeExamples batch;
  std::vector<float> of_examples = {1, 2, 4, 8, 16, 32};
  std::vector<float> of_requests = {0.5F, 0.25F};
  const std::vector<int64_t> example_offsets = {0, 2, 2, 3};
  const std::vector<int64_t> request_offsets = {0, 1, 1};
  const SequenceInput sequences[] = {
      {.values = of_examples.data(), .ids = 3, .offsets = example_offsets.data()},
      {.values = of_requests.data(), .ids = 1, .offsets = request_offsets.data()}};
  DenseProgramInputs inputs = batch.inputs();
  inputs.sequences = sequences;
  Outputs outputs;
  const Status status = RunProgram(**program, inputs, &outputs);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(outputs.score, (std::vector<float>{15, 0, 48}));
  EXPECT_EQ(outputs.pair, (std::vector<float>{2, 2, 0, 0, 1, 1}));
  EXPECT_EQ(outputs.user, (std::vector<float>{0.75F, 1, 0.75F, 1}));
}

TEST(TorchScriptProgram, SequencesOfNoIdsMayBeNull) {
  auto program =
      LoadTorchScriptProgram(ProgramFile("sequences"), SchemaWithSequences(), {.threads = 1});
  ASSERT_TRUE(program.ok()) << program.status().message();
  ThreeExamples batch;
  const std::vector<int64_t> offsets = {0, 0, 0, 0};
  const SequenceInput sequences[] = {{.offsets = offsets.data()}, {.offsets = offsets.data()}};
  DenseProgramInputs inputs = batch.inputs();
  inputs.sequences = sequences;
  Outputs outputs;
  const Status status = RunProgram(**program, inputs, &outputs);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(outputs.score, (std::vector<float>{0, 0, 0}));
}

TEST(TorchScriptProgram, AProgramThatWantsASequenceMoreIsRefusedWhenLoaded) {
  Schema schema = SchemaWithSequences();
  schema.sequences.pop_back();
  const Status status =
      LoadTorchScriptProgram(ProgramFile("sequences"), schema, {.threads = 1}).status();
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
}

TEST(TorchScriptProgram, RunsOnAnyThread) {
  auto program = LoadTorchScriptProgram(ProgramFile("sound"), SchemaOfPrograms(), {.threads = 2});
  ASSERT_TRUE(program.ok()) << program.status().message();
  Outputs outputs;
  Status status = Internal("not run");
  std::thread([&] {
    ThreeExamples batch;
    status = RunProgram(**program, batch.inputs(), &outputs);
  }).join();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(outputs.score, (std::vector<float>{113.75F, 141, 264}));
}

TEST(TorchScriptProgram, AProgramThatThrowsIsAnErrorAndTheNextBatchIsFine) {
  auto program = LoadTorchScriptProgram(ProgramFile("throws_at_ninety_nine"), SchemaOfPrograms(),
                                        {.threads = 1});
  ASSERT_TRUE(program.ok()) << program.status().message();
  ThreeExamples batch;
  batch.example_dense[1] = 99;
  Outputs outputs;
  const Status status = RunProgram(**program, batch.inputs(), &outputs);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("ninety-nine"), std::string::npos) << status.message();
  EXPECT_TRUE(RunProgram(**program, ThreeExamples().inputs(), &outputs).ok());
}

struct Refused {
  std::string program;
  std::string message;
};

class Refusal : public ::testing::TestWithParam<Refused> {};

TEST_P(Refusal, IsABadPackageThatNamesTheFileAndWhatWasExpected) {
  const Status status = LoadStatus(GetParam().program);
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message(), "programs/" + GetParam().program + ".pt: " + GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    TorchScriptProgram, Refusal,
    ::testing::Values(
        Refused{"missing_output", "dense program: expected an output 'user', got none"},
        Refused{"too_few_outputs", "dense program: expected 3 outputs, got 1"},
        Refused{"output_of_the_other_scope",
                "dense program: output 'user': expected Float [2, 2], got Float [3, 2]"},
        Refused{"double_output",
                "dense program: output 'score': expected Float [3], got Double [3]"},
        Refused{"two_tensors",
                "expected forward(self, List[Tensor], List[Tensor], Tensor) -> Dict[str, Tensor], "
                "got forward(__torch__.TwoTensors self, Tensor request, Tensor example) -> "
                "Tensor"}),
    [](const auto& info) { return info.param.program; });

TEST(TorchScriptProgram, BytesThatAreNoProgramAreABadPackage) {
  for (const char* const bytes : {"not a program", ""}) {
    const Status status = LoadTorchScriptProgram({.name = "programs/dense.pt", .bytes = bytes},
                                                 SchemaOfPrograms(), {})
                              .status();
    EXPECT_EQ(status.code(), StatusCode::kBadPackage);
    EXPECT_TRUE(status.message().starts_with("programs/dense.pt: ")) << status.message();
  }
}

}  // namespace
}  // namespace embershard
