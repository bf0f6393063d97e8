// Which of a package's dense programs is run here.

#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/read_control.h"
#include "base/status.h"
#include "dense/dense_program.h"
#include "package/manifest.h"
#include "package/samples.h"

namespace embershard {

// Of `dense_program`: TorchScript whose layers in bfloat16 run in float32.
inline constexpr std::string_view kFloat32LayersTarget = "cpu-fp32";

// What a program must fit.
struct ProgramHost {
  std::string torch;                   // Its version.
  std::set<std::string> instructions;  // What the processor has.
};

// One way to run the dense program.
struct ProgramChoice {
  std::string target;  // As `dense_program` names it.
  bool compiled = false;
  bool float32_layers = false;  // As in DenseProgramOptions.
  DenseType type = DenseType::kFloat32;
  std::string file;
};

struct ProgramChoices {
  std::vector<ProgramChoice> programs;  // At least one. The first is preferred.
  std::string note;                     // What is left out, and why. Perhaps empty.
};

// The program whose target is `target`: kBadPackage says what does not fit, and what to do;
// kNotFound: no such target. Empty: those that run well on `host`, which are
//
//   1. the first compiled one that fits
//   2. TorchScript; if its layers are in bfloat16, which `host` does not multiply, in float32 first
Result<ProgramChoices> ChoosePrograms(const Manifest& manifest, const std::string& target,
                                      const ProgramHost& host);

// Runs the programs in turns over each sample's number of examples and lengths of sequences, with
// made-up values, for a quarter of a second or 200 turns. The least seconds that each took for all
// samples together. `control` counts each turn, and stops it; null: nobody does. Fails as a program
// does.
Result<std::vector<double>> TimePrograms(const std::vector<std::unique_ptr<DenseProgram>>& programs,
                                         const Schema& schema,
                                         const std::vector<SampleRequest>& samples,
                                         ReadControl* control);

// Which of several programs to run, by the seconds that each takes: the first, unless another takes
// less than 0.95 of it.
size_t FastestProgram(const std::vector<double>& seconds);

// "samples take 0.412 ms, with cpu 0.530 ms". The seconds are those of the programs.
std::string ComparedText(const std::vector<ProgramChoice>& programs,
                         const std::vector<double>& seconds, size_t chosen);

}  // namespace embershard
