#include "model/program_choice.h"

#include <gtest/gtest.h>

namespace embershard {
namespace {

using Instructions = std::set<std::string>;

const Instructions kWithout = {"avx2", "avx512f", "fma"};
const Instructions kWith = {"avx2", "avx512_bf16", "avx512f", "fma"};

Manifest ManifestOf(DenseType type) {
  Manifest manifest;
  manifest.program = {.type = type, .file = "programs/dense.pt"};
  return manifest;
}

ProgramChoice Choice(const Manifest& manifest, const std::string& target,
                     const Instructions& instructions) {
  const Result<ProgramChoice> choice = ChooseProgram(manifest, target, instructions);
  EXPECT_TRUE(choice.ok()) << choice.status().message();
  return *choice;
}

TEST(ProgramChoice, RunsLayersInFloat32AsTheyAre) {
  const ProgramChoice choice = Choice(ManifestOf(DenseType::kFloat32), "", kWithout);
  EXPECT_FALSE(choice.float32_layers);
  EXPECT_EQ(choice.report.target, "cpu");
  EXPECT_EQ(choice.report.why, "no other fits");
  EXPECT_FALSE(choice.report.is_substitute);
}

TEST(ProgramChoice, RunsLayersInBfloat16IfTheProcessorDoes) {
  const ProgramChoice choice = Choice(ManifestOf(DenseType::kBfloat16), "", kWith);
  EXPECT_FALSE(choice.float32_layers);
  EXPECT_EQ(choice.report.target, "cpu");
  EXPECT_FALSE(choice.report.is_substitute);
}

TEST(ProgramChoice, RunsLayersInFloat32WithoutBfloat16OfTheProcessor) {
  const ProgramChoice choice = Choice(ManifestOf(DenseType::kBfloat16), "", kWithout);
  EXPECT_TRUE(choice.float32_layers);
  EXPECT_EQ(choice.report.target, "cpu-fp32");
  EXPECT_EQ(choice.report.why, "the processor does not multiply bfloat16");
  EXPECT_TRUE(choice.report.is_substitute);
}

TEST(ProgramChoice, IsTheOneThatDenseProgramNames) {
  for (const Instructions& instructions : {kWith, kWithout}) {
    for (const char* target : {"cpu", "cpu-fp32"}) {
      const ProgramChoice choice = Choice(ManifestOf(DenseType::kBfloat16), target, instructions);
      EXPECT_EQ(choice.float32_layers, choice.report.target == "cpu-fp32");
      EXPECT_EQ(choice.report.target, target);
      EXPECT_EQ(choice.report.why, "dense_program says so");
      EXPECT_FALSE(choice.report.is_substitute);
    }
  }
}

TEST(ProgramChoice, IsTorchScriptIfCompiledProgramsAreListed) {
  Manifest manifest = ManifestOf(DenseType::kFloat32);
  manifest.compiled_programs = {"programs/wide.pt2", "programs/old.pt2"};
  const ProgramChoice choice = Choice(manifest, "", kWith);
  EXPECT_EQ(choice.report.target, "cpu");
  EXPECT_EQ(choice.report.why,
            "no other fits; compiled programs are not run: programs/wide.pt2, programs/old.pt2");
  EXPECT_TRUE(choice.report.is_substitute);
}

TEST(ProgramChoice, RefusesTheTargetOfACompiledProgram) {
  Manifest manifest = ManifestOf(DenseType::kFloat32);
  manifest.compiled_programs = {"programs/wide.pt2"};
  const Status status = ChooseProgram(manifest, "wide", kWith).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "dense_program: expected cpu or cpu-fp32, got 'wide'; leave it out to have the "
            "processor decide");
}

}  // namespace
}  // namespace embershard
