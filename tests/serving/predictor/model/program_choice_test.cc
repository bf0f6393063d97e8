#include "model/program_choice.h"

#include <gtest/gtest.h>

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

TEST(ProgramChoice, IsTorchScriptWhereNothingIsCompiled) {
  for (const char* target : {"", "cpu"}) {
    const auto choice = ChooseProgram(ManifestWith({}), target, kHost);
    ASSERT_TRUE(choice.ok()) << choice.status().message();
    EXPECT_FALSE(choice->compiled);
    EXPECT_EQ(choice->file, "programs/dense.pt");
    EXPECT_EQ(choice->type, DenseType::kFloat32);
  }
}

TEST(ProgramChoice, IsTheFirstCompiledOneThatFits) {
  const Manifest manifest = ManifestWith(
      {Compiled("wide", "2.13.0", {"avx512f"}), Compiled("old", "2.12.1", {"avx2"}),
       Compiled("good", "2.13.0", {"avx2", "fma"}), Compiled("good_too", "2.13.0", {"avx2"})});
  const auto choice = ChooseProgram(manifest, "", kHost);
  ASSERT_TRUE(choice.ok()) << choice.status().message();
  EXPECT_TRUE(choice->compiled);
  EXPECT_EQ(choice->file, "programs/good.pt2");
  EXPECT_EQ(choice->type, DenseType::kBfloat16);
}

TEST(ProgramChoice, IsTheOneAskedFor) {
  const Manifest manifest =
      ManifestWith({Compiled("one", "2.13.0", {"avx2"}), Compiled("other", "2.13.0", {"avx2"})});
  EXPECT_EQ(ChooseProgram(manifest, "other", kHost)->file, "programs/other.pt2");
  EXPECT_EQ(ChooseProgram(manifest, "cpu", kHost)->file, "programs/dense.pt");
}

TEST(ProgramChoice, RefusesAnotherProcessorInASentence) {
  for (const char* target : {"", "wide"}) {
    const Status status =
        ChooseProgram(ManifestWith({Compiled("wide", "2.13.0", {"avx2", "amx_tile"})}), target,
                      kHost)
            .status();
    EXPECT_EQ(status.code(), StatusCode::kBadPackage);
    EXPECT_EQ(status.message(),
              "programs/wide.pt2: instructions: expected a processor with amx_tile, got one "
              "without; compile the package here (`embershard compile`), or run its TorchScript "
              "(`--dense-program cpu`)");
  }
}

TEST(ProgramChoice, RefusesAnotherTorchInASentence) {
  const Status status =
      ChooseProgram(ManifestWith({Compiled("old", "2.12.1", {"avx2"})}), "", kHost).status();
  EXPECT_EQ(status.code(), StatusCode::kBadPackage);
  EXPECT_EQ(status.message().substr(0, 84),
            "programs/old.pt2: torch: expected version 2.12.1, which compiled it, got 2.13.0; com");
}

TEST(ProgramChoice, RefusesATargetThatIsNotThere) {
  const Status status =
      ChooseProgram(ManifestWith({Compiled("one", "2.13.0", {"avx2"})}), "two", kHost).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "dense_program: expected one of cpu, one, got 'two'");
}

}  // namespace
}  // namespace embershard
