#include "model/program_choice.h"

namespace embershard {
namespace {

Status CheckFits(const CompiledProgramSpec& program, const ProgramHost& host) {
  const std::string remedy = "; compile the package here (`embershard compile`), or run its " +
                             std::string("TorchScript (`--dense-program cpu`)");
  if (program.torch != host.torch) {
    return BadPackage(program.file + ": torch: expected version " + program.torch +
                      ", which compiled it, got " + host.torch + remedy);
  }
  for (const std::string& instruction : program.instructions) {
    if (host.instructions.contains(instruction)) continue;
    return BadPackage(program.file + ": instructions: expected a processor with " + instruction +
                      ", got one without" + remedy);
  }
  return {};
}

Status NoSuchTarget(const Manifest& manifest, const std::string& target) {
  std::string known(kTorchScriptTarget);
  for (const CompiledProgramSpec& program : manifest.compiled_programs) {
    known += ", " + program.target;
  }
  return NotFound("dense_program: expected one of " + known + ", got '" + target + "'");
}

}  // namespace

Result<ProgramChoice> ChooseProgram(const Manifest& manifest, const std::string& target,
                                    const ProgramHost& host) {
  const bool any = target.empty();
  if (target == kTorchScriptTarget || (any && manifest.compiled_programs.empty())) {
    return ProgramChoice{false, manifest.program.type, manifest.program.file};
  }
  Status first_misfit = NoSuchTarget(manifest, target);
  bool found = false;
  for (const CompiledProgramSpec& program : manifest.compiled_programs) {
    if (!any && program.target != target) continue;
    const Status fits = CheckFits(program, host);
    if (fits.ok()) return ProgramChoice{true, program.type, program.file};
    if (!found) first_misfit = fits;
    found = true;
  }
  return first_misfit;
}

}  // namespace embershard
