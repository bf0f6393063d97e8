#include "binding/served_model.h"

#include <algorithm>
#include <utility>

#include "model/model.h"

namespace embershard {

Result<std::shared_ptr<Engine>> StartEngine(const ServedModelOptions& options) {
  ModelOptions model_options;
  model_options.package.residency =
      options.resident ? TableResidency::kResident : TableResidency::kMmap;
  model_options.package.plan = options.plan;
  model_options.threads = options.threads;
  model_options.fbgemm_folder = options.fbgemm_folder;
  Result<std::unique_ptr<Model>> model = LoadPackageModel(options.folder, model_options);
  if (!model.ok()) return model.status();

  EngineOptions engine_options;
  engine_options.batching = options.batching;
  // A queue shorter than a batch bounds the batch too, and so what one request may hold.
  BatchingOptions& batching = engine_options.batching;
  batching.max_batch_examples = std::min(batching.max_batch_examples, batching.max_queued_examples);
  batching.max_batch_ids = std::min(batching.max_batch_ids, batching.max_queued_ids);
  Result<std::unique_ptr<Engine>> engine = Engine::Start(std::move(*model), engine_options);
  if (!engine.ok()) return engine.status();
  return std::shared_ptr<Engine>(std::move(*engine));
}

}  // namespace embershard
