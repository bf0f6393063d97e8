#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/clock.h"
#include "base/core_count.h"
#include "dense/dense_program.h"
#include "device/torch_device.h"
#include "lookup/sharded_lookup.h"
#include "model/device_model.h"
#include "model/model.h"
#include "model/program_choice.h"

namespace embershard {
namespace {

struct LoadedProgram {
  std::unique_ptr<DenseProgram> program;
  bool float32_layers = false;
  ProgramReport report;
};

class PackageModel final : public Model {
 public:
  // `lookups` has one lookup per slot, all over the same tables.
  PackageModel(std::shared_ptr<const Package> package,
               std::vector<std::unique_ptr<ShardedLookup>> lookups, LoadedProgram loaded)
      : package_(std::move(package)), loaded_(std::move(loaded)) {
    for (auto& lookup : lookups) lanes_.push_back({.lookup = std::move(lookup)});
  }

  const Manifest& manifest() const override { return package_->manifest(); }
  const IdMap& id_map(size_t sparse_input) const override { return package_->id_map(sparse_input); }
  const std::vector<SampleRequest>& samples() const override { return package_->samples(); }

  bool rounds_elsewhere() const override { return loaded_.float32_layers; }
  const ProgramReport& program() const override { return loaded_.report; }
  size_t slots() const override { return lanes_.size(); }

  Status Run(Slot& slot) override {
    try {
      Lane& lane = lanes_[slot.number];
      const Clock::time_point start = Clock::now();
      RETURN_IF_ERROR(RunLookup(slot, &lane));
      const Clock::time_point looked_up = Clock::now();
      slot.lookup_us = MicrosecondsBetween(start, looked_up);
      RETURN_IF_ERROR(RunProgram(slot, &lane));
      slot.dense_us = MicrosecondsBetween(looked_up, Clock::now());
      return {};
    } catch (const std::exception& error) {
      return Internal("model: ", error.what());
    }
  }

  std::vector<DeviceLoad> device_loads() const override {
    std::vector<DeviceLoad> sums = lanes_[0].lookup->device_loads();
    for (size_t i = 1; i < lanes_.size(); ++i) {
      const std::vector<DeviceLoad> loads = lanes_[i].lookup->device_loads();
      for (size_t device = 0; device < sums.size(); ++device) {
        sums[device].lookup_ns += loads[device].lookup_ns;
        sums[device].batches += loads[device].batches;
        sums[device].rows += loads[device].rows;
      }
    }
    return sums;
  }

 private:
  struct Lane {
    std::unique_ptr<ShardedLookup> lookup;

    std::vector<JaggedRows> sparse = {};
    std::vector<LookupMatrix> vectors = {};
    std::vector<SequenceInput> sequences = {};
  };

  Status RunLookup(Slot& slot, Lane* lane) {
    const Schema& schema = package_->schema();
    slot.request_pooled.resize(slot.requests * schema.request_pooled_columns);
    slot.example_pooled.resize(slot.examples * schema.example_pooled_columns);
    lane->sparse.clear();
    for (const SlotSparse& input : slot.sparse) {
      lane->sparse.push_back({.rows = input.rows.data(),
                              .offsets = input.offsets.data(),
                              .weights = input.weights.data()});
    }
    slot.sequences.resize(schema.sequences.size());
    lane->vectors.clear();
    for (size_t i = 0; i < schema.sequences.size(); ++i) {
      const SequenceSpec& sequence = schema.sequences[i];
      const auto dim = static_cast<size_t>(sequence.dim);
      const size_t ids = slot.sparse[sequence.sparse_input].rows.size();
      slot.sequences[i].resize(ids * dim);
      lane->vectors.push_back({.values = slot.sequences[i].data(), .bags = ids, .columns = dim});
    }
    return lane->lookup->Run(lane->sparse, {.request = {.values = slot.request_pooled.data(),
                                                        .bags = slot.requests,
                                                        .columns = schema.request_pooled_columns},
                                            .example = {.values = slot.example_pooled.data(),
                                                        .bags = slot.examples,
                                                        .columns = schema.example_pooled_columns},
                                            .sequences = lane->vectors});
  }

  Status RunProgram(Slot& slot, Lane* lane) {
    lane->sequences.clear();
    for (size_t i = 0; i < slot.sequences.size(); ++i) {
      const SlotSparse& lists = slot.sparse[package_->schema().sequences[i].sparse_input];
      lane->sequences.push_back({.values = slot.sequences[i].data(),
                                 .ids = lists.rows.size(),
                                 .offsets = lists.offsets.data()});
    }
    return loaded_.program->Run({.requests = slot.requests,
                                 .examples = slot.examples,
                                 .request_dense = slot.request_dense.data(),
                                 .request_pooled = slot.request_pooled.data(),
                                 .example_dense = slot.example_dense.data(),
                                 .example_pooled = slot.example_pooled.data(),
                                 .request_of_example = slot.request_of_example.data(),
                                 .sequences = lane->sequences},
                                &slot.outputs);
  }

  const std::shared_ptr<const Package> package_;  // First, because the lookups read its tables.
  const LoadedProgram loaded_;
  std::vector<Lane> lanes_;  // One per slot.
};

Status ExplainMissingFbgemm(const Status& status, const ModelOptions& options) {
  const bool wants_fbgemm = status.message().find("fbgemm::") != std::string::npos;
  if (!wants_fbgemm || !options.fbgemm_folder.empty()) return status;
  return BadPackage(status.message(),
                    "; it uses operators of FBGEMM, which is not installed here (fbgemm-gpu-cpu)");
}

struct Shares {
  int slots = 1;
  int threads = 1;
};

Status CheckCount(const char* option, int count) {
  if (count >= 0 && count <= kThreadsMax) return {};
  return InvalidArgument(option, ": expected 0..", kThreadsMax, ", got ", count);
}

Status CheckOptions(const ModelOptions& options) {
  RETURN_IF_ERROR(CheckCount("threads", options.threads));
  return CheckCount("slots", options.slots);
}

Shares SharesOf(const ModelOptions& options) {
  const int threads = options.threads > 0 ? options.threads : CoreCount();
  const int slots = options.slots > 0 ? options.slots : threads;
  return {.slots = slots, .threads = std::max(1, threads / slots)};
}

Status LoadProgram(const Package& package, const ModelOptions& options, const Shares& shares,
                   LoadedProgram* loaded) {
  if (!options.fbgemm_folder.empty()) RETURN_IF_ERROR(LoadFbgemmOperators(options.fbgemm_folder));
  ASSIGN_OR_RETURN(ProgramChoice choice,
                   ChooseProgram(package.manifest(), options.dense_program, UsableFlags()));
  const ProgramSpec& spec = package.manifest().program;
  ASSIGN_OR_RETURN(std::string bytes, package.ReadFile(spec.file, options.package.control));
  auto program =
      LoadTorchScriptProgram({.name = spec.file, .bytes = std::move(bytes)}, package.schema(),
                             {.threads = shares.threads, .float32_layers = choice.float32_layers});
  if (!program.ok()) return ExplainMissingFbgemm(program.status(), options);
  *loaded = {.program = std::move(*program),
             .float32_layers = spec.type == DenseType::kBfloat16 && choice.float32_layers,
             .report = std::move(choice.report)};
  return {};
}

// False if the devices are of one other kind. Fails with kBadPackage for several kinds.
Result<bool> IsOnProcessors(const Plan& plan) {
  const auto kind_of = [](const std::string& device) { return device.substr(0, device.find(':')); };
  const std::string kind = kind_of(plan.devices[0]);
  for (const std::string& device : plan.devices) {
    if (kind_of(device) == kind) continue;
    return Status(
        StatusCode::kBadPackage,
        StrCat("plans/", plan.name, ".json: expected devices of one kind, got '", plan.devices[0],
               "' and '", device, "'; `embershard plan` makes such plans"),
        StatusReason::kOtherDevices);
  }
  return kind == "cpu";
}

Result<std::unique_ptr<Model>> LoadDeviceModel(std::shared_ptr<const Package> package,
                                               const ModelOptions& options) {
  if (options.fbgemm_folder.empty()) {
    return Status(StatusCode::kBadPackage,
                  StrCat("plans/", package->plan().name, ".json: device '",
                         package->plan().devices[0], "' needs FBGEMM, which is not installed here"),
                  StatusReason::kOtherDevices);
  }
  RETURN_IF_ERROR(LoadFbgemmOperators(options.fbgemm_folder));
  const size_t slots = options.slots > 0 ? static_cast<size_t>(options.slots) : kDeviceSlots;
  std::unique_ptr<Model> model;
  RETURN_IF_ERROR(RunIn(options.background, [&]() -> Status {
    ASSIGN_OR_RETURN(model, MakeDeviceModel(std::move(package), MakeTorchDevice,
                                            {.slots = slots,
                                             .half_transfers = options.half_transfers,
                                             .control = options.package.control}));
    return {};
  }));
  return model;
}

// `source`: see Package::Open().
template <class Source>
Result<std::unique_ptr<Model>> OpenAndMake(const Source& source, const ModelOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  std::unique_ptr<Package> package;
  RETURN_IF_ERROR(RunIn(options.background, [&]() -> Status {
    ASSIGN_OR_RETURN(package, Package::Open(source, options.package));
    return {};
  }));
  return MakePackageModel(std::move(package), options);
}

}  // namespace

size_t SlotCount(const ModelOptions& options) {
  return static_cast<size_t>(SharesOf(options).slots);
}

Result<std::unique_ptr<Model>> LoadPackageModel(const std::filesystem::path& folder,
                                                const ModelOptions& options) {
  return OpenAndMake(folder, options);
}

Result<std::unique_ptr<Model>> LoadPackageModel(const PackageOutline& outline,
                                                const ModelOptions& options) {
  return OpenAndMake(outline, options);
}

Result<std::unique_ptr<Model>> MakePackageModel(std::shared_ptr<const Package> package,
                                                const ModelOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const bool on_processors, IsOnProcessors(package->plan()));
  if (!on_processors) return LoadDeviceModel(std::move(package), options);
  const Shares shares = SharesOf(options);
  std::vector<std::unique_ptr<ShardedLookup>> lookups;
  for (int slot = 0; slot < shares.slots; ++slot) {
    ASSIGN_OR_RETURN(auto lookup, ShardedLookup::Make(*package, {.threads = shares.threads}));
    lookups.push_back(std::move(lookup));
  }
  LoadedProgram loaded;
  RETURN_IF_ERROR(
      RunIn(options.background, [&] { return LoadProgram(*package, options, shares, &loaded); }));
  return std::unique_ptr<Model>(
      std::make_unique<PackageModel>(std::move(package), std::move(lookups), std::move(loaded)));
}

}  // namespace embershard
