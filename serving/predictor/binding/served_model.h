// What both classes of the extension begin with: a package, loaded and running.

#ifndef EMBERSHARD_BINDING_SERVED_MODEL_H_
#define EMBERSHARD_BINDING_SERVED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"

namespace embershard {

struct ServedModelOptions {
  std::string folder;         // Of the package.
  std::string fbgemm_folder;  // Where fbgemm_gpu is installed.
  std::string plan;           // Empty: the package's default.
  bool resident = false;
  int threads = 0;  // 0: as many as there are cores.
  BatchingOptions batching;
};

// Loads FBGEMM, opens the package, runs its samples. Takes as long as that takes; any
// thread.
Result<std::shared_ptr<Engine>> StartEngine(const ServedModelOptions& options);

}  // namespace embershard

#endif  // EMBERSHARD_BINDING_SERVED_MODEL_H_
