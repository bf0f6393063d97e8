#include "batching/batching_options.h"

#include <algorithm>
#include <string>

namespace embershard {
namespace {

constexpr size_t kBatchesQueued = 8;
constexpr size_t kMergeExamples = 512;

// Fills the zeros of one unit of size. `least`: the smallest default of a batch.
template <class Size>
Status Complete(const std::string& unit, Size package, Size least, Size* batch, Size* queued) {
  if (*batch == 0) {
    *batch = std::max(package, least);
    if (*queued > 0) *batch = std::min(*batch, *queued);
  }
  if (*queued == 0) *queued = kBatchesQueued * *batch;
  if (*batch <= *queued) return {};
  return InvalidArgument("max_queued_" + unit + ": expected at least " + std::to_string(*batch) +
                         " (max_batch_" + unit + "), got " + std::to_string(*queued));
}

}  // namespace

Result<BatchingOptions> CompleteOptions(const BatchingOptions& asked, const Limits& package) {
  BatchingOptions options = asked;
  Status status = Complete<size_t>("examples", package.max_examples, 4096,
                                   &options.max_batch_examples, &options.max_queued_examples);
  if (!status.ok()) return status;
  status = Complete<uint64_t>("ids", package.max_ids, 1 << 20, &options.max_batch_ids,
                              &options.max_queued_ids);
  if (!status.ok()) return status;
  if (options.merge_examples == 0) options.merge_examples = kMergeExamples;
  options.merge_examples = std::min(options.merge_examples, options.max_batch_examples);
  if (options.max_queued_bytes == 0) {
    return InvalidArgument("max_queued_bytes: expected at least 1, got 0");
  }
  return options;
}

}  // namespace embershard
