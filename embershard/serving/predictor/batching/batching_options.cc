#include "batching/batching_options.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace embershard {
namespace {

constexpr size_t kRequestsQueued = 8;
constexpr size_t kBatchExamples = 1024;

// Limits in one unit: examples or ids.
template <class Size>
struct Sizes {
  std::string unit;
  Size least_request;  // Smaller requests count as this when the queue's size is chosen.
  Size* request;
  Size* batch;
  Size* queued;
};

template <class Size>
Status Complete(const Sizes<Size>& sizes, Size package, Size default_batch) {
  const Size most = *sizes.queued > 0 ? *sizes.queued : std::numeric_limits<Size>::max();
  if (*sizes.request == 0) *sizes.request = std::min(package, most);
  if (*sizes.batch == 0) *sizes.batch = std::min(default_batch, most);
  if (*sizes.queued == 0) {
    const Size larger = std::max(*sizes.request, *sizes.batch);
    *sizes.queued = kRequestsQueued * std::max(larger, sizes.least_request);
  }
  for (const auto& [name, size] :
       {std::pair("max_batch_", *sizes.batch), std::pair("max_request_", *sizes.request)}) {
    if (size <= *sizes.queued) continue;
    return InvalidArgument("max_queued_", sizes.unit, ": expected at least ", size, " (", name,
                           sizes.unit, "), got ", *sizes.queued);
  }
  return {};
}

}  // namespace

Result<BatchingOptions> CompleteOptions(const BatchingOptions& asked, const Limits& package) {
  BatchingOptions options = asked;
  if (options.slots == 0) return InvalidArgument("slots: expected at least 1, got 0");
  if (options.merge_examples == 0) options.merge_examples = kMergeExamples;
  const size_t least_batch = options.slots > 1 ? kMergeExamples : kBatchExamples;
  RETURN_IF_ERROR(Complete<size_t>({.unit = "examples",
                                    .least_request = 4096,
                                    .request = &options.max_request_examples,
                                    .batch = &options.max_batch_examples,
                                    .queued = &options.max_queued_examples},
                                   package.max_examples,
                                   std::max(least_batch, options.merge_examples)));
  RETURN_IF_ERROR(Complete<uint64_t>({.unit = "ids",
                                      .least_request = kBatchIds,
                                      .request = &options.max_request_ids,
                                      .batch = &options.max_batch_ids,
                                      .queued = &options.max_queued_ids},
                                     package.max_ids, kBatchIds));
  options.merge_examples = std::min(options.merge_examples, options.max_batch_examples);
  if (options.max_queued_bytes == 0) {
    return InvalidArgument("max_queued_bytes: expected at least 1, got 0");
  }
  return options;
}

}  // namespace embershard
