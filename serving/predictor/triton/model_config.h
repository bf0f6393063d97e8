// What a model's config.pbtxt says to this backend. docs/triton.md is the manual.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"
#include "package/tables.h"

namespace embershard::triton {

// A tensor as config.pbtxt has it.
struct ConfigTensor {
  std::string name;
  std::string data_type;  // "TYPE_FP32", for one.
};

struct ModelConfig {
  // The parameters, named as here, with `tables` and `fbgemm` for the last two.
  std::string plan;               // Empty: the package's default.
  std::string dense_program;      // A target. Empty: as ModelOptions chooses.
  size_t max_batch_examples = 0;  // Budget of a batch. 0: BatchingOptions' choice.
  uint64_t max_batch_ids = 0;     // The same, in ids.
  int threads = 0;                // Of each instance. 0: its share of the cores.
  TableResidency residency = TableResidency::kMmap;
  std::filesystem::path fbgemm_folder;  // Empty: no operator of FBGEMM is loaded.

  int instances = 0;                  // Of all groups. 0: not stated, see TritonModel.
  std::vector<ConfigTensor> inputs;   // Empty: not stated.
  std::vector<ConfigTensor> outputs;  // The same.
};

// `json`: the configuration as Triton gives it. kInvalidArgument names the parameter; those that
// begin with TRITON_ are Triton's own.
Result<ModelConfig> ReadModelConfig(std::string_view json);

// Whether the tensors that `config` states are tensors of the model.
Status CheckTensors(const ModelConfig& config, const Schema& schema);

// Most requests of a batch where config.pbtxt does not say how many.
inline constexpr int kDefaultMaxRequests = 256;

// The configuration with the model's tensors, if it has none. One that says nothing about
// batches either gets Triton's dynamic batching. Empty: there is nothing to add.
Result<std::string> CompleteModelConfig(std::string_view json, const Schema& schema);

}  // namespace embershard::triton
