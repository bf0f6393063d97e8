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
  std::string target;          // Target, as in the option dense_program.
  std::string why;             // Reason why this program runs.
  bool is_substitute = false;  // True if the package prefers another program, which is logged.
};

// An interface, so that tests can use fake models besides PackageModel and DeviceModel.
class Model {
 public:
  virtual ~Model() = default;

  virtual const Manifest& manifest() const = 0;
  virtual const IdMap& id_map(size_t sparse_input) const = 0;
  virtual const std::vector<SampleRequest>& samples() const = 0;

  // True if the model rounds at other places than the run that produced the samples' outputs. Its
  // layers round only their weights to bfloat16, its lookups compute in float16, or vectors travel
  // as float16.
  virtual bool rounds_elsewhere() const { return false; }

  virtual bool is_on_gpus() const { return false; }

  virtual const ProgramReport& program() const {
    static const ProgramReport none;
    return none;
  }

  // Number of batches that can run at a time, at least 1.
  virtual size_t slots() const { return 1; }

  // Reads the fields of `slot` that the builder filled, and fills the others. Calls with the same
  // Slot::number must not run concurrently. Never throws.
  virtual Status Run(Slot& slot) = 0;

  // Counters since the model was loaded. Thread-safe.
  virtual std::vector<DeviceLoad> device_loads() const { return {}; }
};

inline constexpr int kThreadsMax = 1024;

struct ModelOptions {
  PackageOptions package;

  // Threads for lookups, and for the dense program after them. 0: CoreCount(). At most kThreadsMax.
  int threads = 0;

  // Batches that run at a time share the threads equally, with at least one thread each. 0: one
  // batch per thread. At most kThreadsMax.
  int slots = 1;

  // Transfers vectors between devices that have their own memory as float16 instead of float32.
  bool half_transfers = false;

  // Target of the dense program; see ChooseProgram(). Empty: depends on the processor.
  std::string dense_program;

  // Folder of the installed package fbgemm_gpu. Empty: programs that use its operators are refused.
  std::filesystem::path fbgemm_folder;

  // Runs the reading and computing of a load, but starts no threads of the model. Null: the calling
  // thread does.
  Background* background = nullptr;
};

size_t SlotCount(const ModelOptions& options);

// Opens and checks the package. Does not run its samples: the engine does, because it has the
// builder of requests. Fails with kInvalidArgument if threads or slots are out of range.
Result<std::unique_ptr<Model>> LoadPackageModel(const std::filesystem::path& folder,
                                                const ModelOptions& options);

// Does not read the manifest again.
Result<std::unique_ptr<Model>> LoadPackageModel(const PackageOutline& outline,
                                                const ModelOptions& options);

// Several models may share `package`, and then have its tables, id maps and samples in memory only
// once. Uses only `control` of `options.package`.
Result<std::unique_ptr<Model>> MakePackageModel(std::shared_ptr<const Package> package,
                                                const ModelOptions& options);

}  // namespace embershard
