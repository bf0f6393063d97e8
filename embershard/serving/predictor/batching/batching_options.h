#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// Defaults of merge_examples and max_batch_ids.
inline constexpr uint32_t kMergeExamples = 256;
inline constexpr uint64_t kBatchIds = 1 << 20;

// Examples are rows to score, ids are rows to look up. CompleteOptions() replaces each 0.
struct BatchingOptions {
  // Largest request, in addition to the package's own limits. A request larger than a batch is
  // split, and its outputs are joined. 0: the package's limits, or the queue's if they are lower.
  size_t max_request_examples = 0;
  uint64_t max_request_ids = 0;

  // Largest batch. Larger requests are split into chunks of at most this size. Other requests wait
  // while a batch runs, and its buffers grow with it. 0: merge_examples but at least 256 examples
  // (1024 with one slot, because chunks cannot run side by side), 2^20 ids, and never more than
  // the queue may hold.
  size_t max_batch_examples = 0;
  uint64_t max_batch_ids = 0;

  // Most examples of a batch of several requests; a larger request runs alone. Above some hundreds
  // an example gets no cheaper, and all requests of a batch wait for its end. 1 turns merging off.
  // 0: 256, or the largest batch if that is smaller.
  size_t merge_examples = 0;

  // Most examples and ids queued at once. Further requests are refused at once, rather than served
  // late. 0: eight of the largest requests, counted as at least 4096 examples and 2^20 ids each.
  size_t max_queued_examples = 0;
  uint64_t max_queued_ids = 0;

  // Most bytes of queued requests, at least 1. Running batches may hold as much again.
  uint64_t max_queued_bytes = 256 << 20;

  // Longest batch, as predicted, that the submitting thread runs itself if the model is idle, which
  // saves two switches between threads. That thread reads no other request meanwhile. 0: never.
  std::chrono::microseconds max_inline{500};

  // Batches that run at once: the number of the model's slots, at least 1.
  size_t slots = 1;
};

// Replaces the zeros in `asked`, for a package with these limits per request. Returns
// kInvalidArgument for a queue that cannot hold the largest batch or request.
Result<BatchingOptions> CompleteOptions(const BatchingOptions& asked, const Limits& package);

}  // namespace embershard
