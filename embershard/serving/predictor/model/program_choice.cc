#include "model/program_choice.h"

namespace embershard {
namespace {

std::string Joined(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) text += (text.empty() ? "" : ", ") + file;
  return text;
}

}  // namespace

Result<ProgramChoice> ChooseProgram(const Manifest& manifest, const std::string& target,
                                    const std::set<std::string>& instructions) {
  const bool is_forced = !target.empty();
  if (is_forced && target != kTorchScriptTarget && target != kFloat32LayersTarget) {
    return NotFound("dense_program: expected ", kTorchScriptTarget, " or ", kFloat32LayersTarget,
                    ", got '", target, "'; leave it out to have the processor decide");
  }
  const bool lacks_bfloat16 =
      manifest.program.type == DenseType::kBfloat16 && !instructions.contains("avx512_bf16");
  const bool float32_layers = is_forced ? target == kFloat32LayersTarget : lacks_bfloat16;
  const bool has_compiled = !manifest.compiled_programs.empty();
  std::string why = is_forced        ? "dense_program says so"
                    : lacks_bfloat16 ? "the processor does not multiply bfloat16"
                                     : "no other fits";
  if (has_compiled) {
    why += "; compiled programs are not run: " + Joined(manifest.compiled_programs);
  }
  return ProgramChoice{
      .float32_layers = float32_layers,
      .report = {.target = std::string(float32_layers ? kFloat32LayersTarget : kTorchScriptTarget),
                 .why = std::move(why),
                 .is_substitute = has_compiled || (lacks_bfloat16 && !is_forced)}};
}

}  // namespace embershard
