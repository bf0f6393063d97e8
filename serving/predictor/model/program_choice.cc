#include "model/program_choice.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace embershard {
namespace {

Status CheckFits(const CompiledProgramSpec& program, const ProgramHost& host) {
  if (program.torch != host.torch) {
    return BadPackage(program.file, ": torch: expected version ", program.torch,
                      ", which compiled it, got ", host.torch);
  }
  for (const std::string& instruction : program.instructions) {
    if (host.instructions.contains(instruction)) continue;
    return BadPackage(program.file, ": instructions: expected a processor with ", instruction,
                      ", got one without");
  }
  return {};
}

Status NoSuchTarget(const Manifest& manifest, const std::string& target) {
  std::string known = std::string(kTorchScriptTarget) + ", " + std::string(kFloat32LayersTarget);
  for (const CompiledProgramSpec& program : manifest.compiled_programs) {
    known += ", " + program.target;
  }
  return NotFound("dense_program: expected one of ", known, ", got '", target, "'");
}

ProgramChoice TorchScript(const Manifest& manifest, bool float32_layers) {
  return {.target = std::string(float32_layers ? kFloat32LayersTarget : kTorchScriptTarget),
          .compiled = false,
          .float32_layers = float32_layers,
          .type = manifest.program.type,
          .file = manifest.program.file};
}

// Of the programs with that target, or of all where it is empty.
Result<ProgramChoice> FirstCompiled(const Manifest& manifest, const std::string& target,
                                    const ProgramHost& host) {
  Status first_misfit = NoSuchTarget(manifest, target);
  bool found = false;
  for (const CompiledProgramSpec& program : manifest.compiled_programs) {
    if (!target.empty() && program.target != target) continue;
    const Status fits = CheckFits(program, host);
    if (fits.ok()) {
      return ProgramChoice{.target = program.target,
                           .compiled = true,
                           .float32_layers = false,
                           .type = program.type,
                           .file = program.file};
    }
    if (!found) first_misfit = fits;
    found = true;
  }
  return first_misfit;
}

std::string Milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g ms", seconds * 1e3);
  return text;
}

}  // namespace

Result<ProgramChoices> ChoosePrograms(const Manifest& manifest, const std::string& target,
                                      const ProgramHost& host) {
  if (target == kTorchScriptTarget || target == kFloat32LayersTarget) {
    return ProgramChoices{{TorchScript(manifest, target == kFloat32LayersTarget)}, {}};
  }
  ProgramChoices choices;
  if (!target.empty() || !manifest.compiled_programs.empty()) {
    Result<ProgramChoice> compiled = FirstCompiled(manifest, target, host);
    if (!target.empty() && compiled.status().code() == StatusCode::kBadPackage) {
      return BadPackage(compiled.status().message(),
                        "; compile the package here (`embershard compile`), or leave "
                        "dense_program out");
    }
    if (!target.empty() && !compiled.ok()) return compiled.status();
    if (!compiled.ok()) choices.note = compiled.status().message();
    if (compiled.ok()) choices.programs.push_back(std::move(*compiled));
    if (!target.empty()) return choices;
  }
  if (manifest.program.type == DenseType::kBfloat16 && !host.instructions.contains("avx512_bf16")) {
    choices.programs.push_back(TorchScript(manifest, /*float32_layers=*/true));
    choices.note += choices.note.empty() ? "" : "; ";
    choices.note += "the processor does not multiply bfloat16";
  }
  choices.programs.push_back(TorchScript(manifest, /*float32_layers=*/false));
  return choices;
}

size_t FastestProgram(const std::vector<double>& seconds) {
  constexpr double kWorthIt = 0.95;  // Of the first: less would change with the machine's noise.
  const auto least = std::ranges::min_element(seconds);
  return *least < kWorthIt * seconds[0] ? static_cast<size_t>(least - seconds.begin()) : 0;
}

std::string ComparedText(const std::vector<ProgramChoice>& programs,
                         const std::vector<double>& seconds, size_t chosen) {
  std::string text = "samples take " + Milliseconds(seconds[chosen]);
  for (size_t i = 0; i < programs.size(); ++i) {
    if (i != chosen) text += ", with " + programs[i].target + " " + Milliseconds(seconds[i]);
  }
  return text;
}

}  // namespace embershard
