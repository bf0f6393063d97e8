#include <exception>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/processor.h"
#include "dense/aot_program.h"
#include "dense/dense_program.h"
#include "dense/fbgemm_operators.h"
#include "lookup/sharded_lookup.h"
#include "model/model.h"
#include "model/program_choice.h"

namespace embershard {
namespace {

class PackageModel final : public Model {
 public:
  PackageModel(std::shared_ptr<const Package> package, std::unique_ptr<Lookup> lookup,
               std::unique_ptr<DenseProgram> program, bool rounds_layers)
      : package_(std::move(package)),
        lookup_(std::move(lookup)),
        program_(std::move(program)),
        rounds_layers_(rounds_layers) {}

  const Manifest& manifest() const override { return package_->manifest(); }
  const IdMap& id_map(size_t sparse_input) const override { return package_->id_map(sparse_input); }
  const std::vector<SampleRequest>& samples() const override { return package_->samples(); }

  bool rounds_layers() const override { return rounds_layers_; }

  Status Run(Slot& slot) override {
    try {
      const Clock::time_point start = Clock::now();
      if (Status status = RunLookup(slot); !status.ok()) return status;
      const Clock::time_point looked_up = Clock::now();
      slot.lookup_us = MicrosecondsBetween(start, looked_up);
      if (Status status = RunProgram(slot); !status.ok()) return status;
      slot.dense_us = MicrosecondsBetween(looked_up, Clock::now());
      return {};
    } catch (const std::exception& error) {
      return Internal(std::string("model: ") + error.what());
    }
  }

  std::vector<DeviceLoad> device_loads() const override { return lookup_->device_loads(); }

 private:
  Status RunLookup(Slot& slot) {
    const Schema& schema = package_->schema();
    slot.request_pooled.resize(slot.requests * schema.request_pooled_columns);
    slot.example_pooled.resize(slot.examples * schema.example_pooled_columns);
    sparse_.clear();
    for (const SlotSparse& input : slot.sparse) {
      sparse_.push_back({.rows = input.rows.data(),
                         .offsets = input.offsets.data(),
                         .weights = input.weights.data()});
    }
    slot.sequences.resize(schema.sequences.size());
    vectors_.clear();
    for (size_t i = 0; i < schema.sequences.size(); ++i) {
      const SequenceSpec& sequence = schema.sequences[i];
      const auto dim = static_cast<size_t>(sequence.dim);
      const size_t ids = slot.sparse[sequence.sparse_input].rows.size();
      slot.sequences[i].resize(ids * dim);
      vectors_.push_back({.values = slot.sequences[i].data(), .bags = ids, .columns = dim});
    }
    return lookup_->Run(sparse_, {.request = {.values = slot.request_pooled.data(),
                                              .bags = slot.requests,
                                              .columns = schema.request_pooled_columns},
                                  .example = {.values = slot.example_pooled.data(),
                                              .bags = slot.examples,
                                              .columns = schema.example_pooled_columns},
                                  .sequences = vectors_});
  }

  Status RunProgram(Slot& slot) {
    slot.outputs.resize(package_->schema().outputs.size());
    outputs_.clear();
    for (SlotOutput& output : slot.outputs) outputs_.push_back(&output.values);
    sequences_.clear();
    for (size_t i = 0; i < slot.sequences.size(); ++i) {
      const SlotSparse& lists = slot.sparse[package_->schema().sequences[i].sparse_input];
      sequences_.push_back({.values = slot.sequences[i].data(),
                            .ids = lists.rows.size(),
                            .offsets = lists.offsets.data()});
    }
    return program_->Run({.requests = slot.requests,
                          .examples = slot.examples,
                          .request_dense = slot.request_dense.data(),
                          .request_pooled = slot.request_pooled.data(),
                          .example_dense = slot.example_dense.data(),
                          .example_pooled = slot.example_pooled.data(),
                          .request_of_example = slot.request_of_example.data(),
                          .sequences = sequences_},
                         outputs_);
  }

  const std::shared_ptr<const Package> package_;  // First: the lookup reads its tables.
  const std::unique_ptr<Lookup> lookup_;
  const std::unique_ptr<DenseProgram> program_;
  const bool rounds_layers_;

  // Views of the slot, kept for their memory.
  std::vector<JaggedRows> sparse_;
  std::vector<LookupMatrix> vectors_;
  std::vector<SequenceInput> sequences_;
  std::vector<std::vector<float>*> outputs_;
};

// A program that did not load for want of FBGEMM says so.
Status Explained(const Status& status, const ModelOptions& options) {
  const bool wants_fbgemm = status.message().find("fbgemm::") != std::string::npos;
  if (!wants_fbgemm || !options.fbgemm_folder.empty()) return status;
  return BadPackage(status.message() +
                    "; it uses operators of FBGEMM, which is not installed here (fbgemm-gpu-cpu)");
}

}  // namespace

Result<std::unique_ptr<Model>> LoadPackageModel(const std::filesystem::path& folder,
                                                const ModelOptions& options) {
  Result<std::unique_ptr<Package>> package = Package::Open(folder, options.package);
  if (!package.ok()) return package.status();
  return MakePackageModel(std::move(*package), options);
}

Result<std::unique_ptr<Model>> MakePackageModel(std::shared_ptr<const Package> package,
                                                const ModelOptions& options) {
  auto lookup = MakeShardedLookup(*package, {.threads = options.threads});
  if (!lookup.ok()) return lookup.status();
  if (!options.fbgemm_folder.empty()) {
    Status status = LoadFbgemmOperators(options.fbgemm_folder);
    if (!status.ok()) return status;
  }
  const Result<ProgramChoice> choice =
      ChooseProgram(package->manifest(), options.dense_program,
                    {.torch = TorchVersion(), .instructions = ProcessorFlags()});
  if (!choice.ok()) return choice.status();
  auto program = (choice->compiled ? LoadAotProgram : LoadTorchScriptProgram)(
      package->folder() / choice->file, package->schema(), {.threads = options.threads});
  if (!program.ok()) return Explained(program.status(), options);
  return std::unique_ptr<Model>(std::make_unique<PackageModel>(
      std::move(package), std::move(*lookup), std::move(*program),
      /*rounds_layers=*/choice->compiled && choice->type == DenseType::kBfloat16));
}

}  // namespace embershard
