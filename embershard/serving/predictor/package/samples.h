#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// In the packed form of proto/embershard/v1/predictor.proto.
struct SampleRequest {
  uint32_t num_examples = 0;
  std::vector<float> request_dense;
  std::vector<float> example_dense;
  std::vector<int32_t> lengths;
  std::vector<int64_t> values;
  std::vector<float> weights;
  std::vector<std::vector<float>> outputs;  // In the order of Schema::outputs.
};

Result<std::vector<SampleRequest>> ReadSamples(const std::filesystem::path& folder,
                                               const Manifest& manifest);

}  // namespace embershard
