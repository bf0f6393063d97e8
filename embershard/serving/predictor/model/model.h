// One loaded model: package + lookup + dense program.

#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/background.h"
#include "base/status.h"
#include "lookup/lookup.h"
#include "model/slot.h"
#include "package/package.h"

namespace embershard {

// The dense program that a model runs.
struct ProgramReport {
  std::string target;          // As `dense_program` names it.
  std::string why;             // Why this one runs.
  bool is_substitute = false;  // True if the package prefers another one: the log says so.
};

// What runs a batch. An interface so that batching and engine are tested
// with models made of a few lines. Final implementations: PackageModel, DeviceModel.
class Model {
 public:
  virtual ~Model() = default;

  virtual const Manifest& manifest() const = 0;
  virtual const IdMap& id_map(size_t sparse_input) const = 0;
  virtual const std::vector<SampleRequest>& samples() const = 0;

  // True if the model rounds at other places than the run that produced the samples' outputs:
  // layers round only their weights to bfloat16, or lookups compute in float16.
  virtual bool rounds_elsewhere() const { return false; }

  // True if batches run on GPUs.
  virtual bool is_on_gpus() const { return false; }

  virtual const ProgramReport& program() const {
    static const ProgramReport none;
    return none;
  }

  // How many batches run at once, each in a slot of another number: each has lookups and scratch
  // memory of its own. At least 1.
  virtual size_t slots() const { return 1; }

  // Runs the batch in `slot`: reads what the builder filled, fills the rest. One
  // call at a time for each Slot::number. Never throws.
  virtual Status Run(Slot& slot) = 0;

  // What its devices hold and have done since it was loaded. Any thread, at any time.
  virtual std::vector<DeviceLoad> device_loads() const { return {}; }
};

inline constexpr int kThreadsMax = 1024;

struct ModelOptions {
  PackageOptions package;

  // Threads of the lookups, and inside the dense program after them. 0: CoreCount(). At most
  // kThreadsMax.
  int threads = 0;

  // Batches that run at once, with equal shares of the threads, one at least. 0: one a thread. At
  // most kThreadsMax.
  int slots = 1;

  // On devices with memory of their own: vectors travel between them as float16; else as float32.
  bool half_transfers = false;

  // Target of the dense program, as ChooseProgram() takes it. Empty: the processor decides.
  std::string dense_program;

  // Where the fbgemm_gpu Python package is installed. Empty: no operator of FBGEMM is loaded, and a
  // dense program that uses some is refused.
  std::filesystem::path fbgemm_folder;

  // Where what is read and computed at loading is done. Null: on the calling thread. The model's
  // own threads are started by that one in either case.
  Background* background = nullptr;
};

// How many batches of a model with these options run at once.
size_t SlotCount(const ModelOptions& options);

// Opens and checks the package and makes it runnable. Its samples are run by the
// engine, which has the builder that requests go through. Refuses threads and slots out of range
// (kInvalidArgument).
Result<std::unique_ptr<Model>> LoadPackageModel(const std::filesystem::path& folder,
                                                const ModelOptions& options);

// The same, without reading the manifest again.
Result<std::unique_ptr<Model>> LoadPackageModel(const PackageOutline& outline,
                                                const ModelOptions& options);

// The same of a package that is open already: several models may share one, whose tables, id maps
// and samples are in memory once. Of `options.package` it takes `control` alone.
Result<std::unique_ptr<Model>> MakePackageModel(std::shared_ptr<const Package> package,
                                                const ModelOptions& options);

}  // namespace embershard
