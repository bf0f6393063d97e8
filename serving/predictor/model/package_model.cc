#include <exception>
#include <string>
#include <utility>

#include "base/clock.h"
#include "dense/dense_program.h"
#include "dense/fbgemm_operators.h"
#include "lookup/sequence_lookup.h"
#include "lookup/sharded_lookup.h"
#include "model/model.h"

namespace embershard {
namespace {

class PackageModel final : public Model {
 public:
  PackageModel(std::unique_ptr<Package> package, std::unique_ptr<Lookup> lookup,
               std::unique_ptr<DenseProgram> program)
      : package_(std::move(package)),
        lookup_(std::move(lookup)),
        sequence_lookup_(*package_),
        program_(std::move(program)) {}

  const Manifest& manifest() const override { return package_->manifest(); }
  const IdMap& id_map(size_t sparse_input) const override { return package_->id_map(sparse_input); }
  const std::vector<SampleRequest>& samples() const override { return package_->samples(); }

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
    Status status = lookup_->Run(sparse_,
                                 {.values = slot.request_pooled.data(),
                                  .bags = slot.requests,
                                  .columns = schema.request_pooled_columns},
                                 {.values = slot.example_pooled.data(),
                                  .bags = slot.examples,
                                  .columns = schema.example_pooled_columns});
    if (!status.ok()) return status;
    slot.sequences.resize(schema.sequences.size());
    for (size_t i = 0; i < schema.sequences.size(); ++i) {
      const std::span<const int64_t> rows(slot.sparse[schema.sequences[i].sparse_input].rows);
      slot.sequences[i].resize(rows.size() * static_cast<size_t>(schema.sequences[i].dim));
      status = sequence_lookup_.Run(i, rows, slot.sequences[i].data());
      if (!status.ok()) return status;
    }
    return {};
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

  const std::unique_ptr<Package> package_;  // First: the lookup reads its tables.
  const std::unique_ptr<Lookup> lookup_;
  const SequenceLookup sequence_lookup_;
  const std::unique_ptr<DenseProgram> program_;

  // Views of the slot, kept for their memory.
  std::vector<JaggedRows> sparse_;
  std::vector<SequenceInput> sequences_;
  std::vector<std::vector<float>*> outputs_;
};

}  // namespace

Result<std::unique_ptr<Model>> LoadPackageModel(const std::filesystem::path& folder,
                                                const ModelOptions& options) {
  auto package = Package::Open(folder, options.package);
  if (!package.ok()) return package.status();
  auto lookup = MakeShardedLookup(**package, {.threads = options.threads});
  if (!lookup.ok()) return lookup.status();
  if (Status status = LoadFbgemmOperators(options.fbgemm_folder); !status.ok()) return status;
  auto program = LoadTorchScriptProgram(folder / (*package)->manifest().program,
                                        (*package)->schema(), {.threads = options.threads});
  if (!program.ok()) return program.status();
  return std::unique_ptr<Model>(
      std::make_unique<PackageModel>(std::move(*package), std::move(*lookup), std::move(*program)));
}

}  // namespace embershard
