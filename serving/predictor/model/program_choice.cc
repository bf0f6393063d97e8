#include "model/program_choice.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <limits>
#include <utility>

#include "base/clock.h"

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

constexpr double kSeconds = 0.25;
constexpr int kFewestTurns = 3;
constexpr int kMostTurns = 200;
constexpr float kValue = 0.125F;  // Of every input: no zeros, which a kernel may skip.

// The inputs of one sample's dense program, one request.
class Inputs {
 public:
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  Inputs(const Schema& schema, const SampleRequest& sample)
      : examples_(sample.num_examples),
        request_(std::max(schema.request_dense_columns, schema.request_pooled_columns), kValue),
        example_(examples_ * std::max(schema.example_dense_columns, schema.example_pooled_columns),
                 kValue),
        request_of_example_(examples_) {
    std::vector<std::vector<int64_t>> offsets;  // Of each sparse input.
    const auto* length = sample.lengths.data();
    for (const SparseInput& input : schema.sparse) {
      const int64_t most = input.max_ids > 0 ? input.max_ids : std::numeric_limits<int32_t>::max();
      std::vector<int64_t>& sums = offsets.emplace_back(1);
      for (size_t bags = input.scope == Scope::kRequest ? 1 : examples_; bags > 0; --bags) {
        sums.push_back(sums.back() + std::min<int64_t>(*length++, most));
      }
    }
    for (const SequenceSpec& sequence : schema.sequences) {
      offsets_.push_back(offsets[sequence.sparse_input]);
      const auto ids = static_cast<size_t>(offsets_.back().back());
      values_.emplace_back(ids * static_cast<size_t>(sequence.dim), kValue);
      sequences_.push_back(
          {.values = values_.back().data(), .ids = ids, .offsets = offsets_.back().data()});
    }
  }

  DenseProgramInputs views() {
    return {.requests = 1,
            .examples = examples_,
            .request_dense = request_.data(),
            .request_pooled = request_.data(),
            .example_dense = example_.data(),
            .example_pooled = example_.data(),
            .request_of_example = request_of_example_.data(),
            .sequences = sequences_};
  }

 private:
  const size_t examples_;
  std::vector<float> request_;  // Dense and pooled: programs only read.
  std::vector<float> example_;
  const std::vector<int64_t> request_of_example_;
  std::vector<std::vector<int64_t>> offsets_;
  std::vector<std::vector<float>> values_;
  std::vector<SequenceInput> sequences_;
};

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

Result<std::vector<double>> TimePrograms(const std::vector<std::unique_ptr<DenseProgram>>& programs,
                                         const Schema& schema,
                                         const std::vector<SampleRequest>& samples,
                                         ReadControl* control) {
  std::deque<Inputs> inputs;  // They hold pointers into themselves.
  for (const SampleRequest& sample : samples) inputs.emplace_back(schema, sample);
  std::vector<std::vector<float>> outputs;
  std::vector<double> least(programs.size(), std::numeric_limits<double>::infinity());
  const Clock::time_point start = Clock::now();
  const auto since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  for (int turn = 0; turn < kFewestTurns || (turn < kMostTurns && since(start) < kSeconds);
       ++turn) {
    for (size_t i = 0; i < programs.size(); ++i) {
      const Clock::time_point begin = Clock::now();
      for (Inputs& each : inputs) {
        RETURN_IF_ERROR(programs[i]->Run(each.views(), &outputs));
      }
      least[i] = std::min(least[i], since(begin));
    }
    if (control == nullptr) continue;
    RETURN_IF_ERROR(control->Advance());
  }
  return least;
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
