// How large batches and the queue in front of them may become.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// Defaults: examples that are merged, and most ids of a batch.
inline constexpr uint32_t kMergeExamples = 256;
inline constexpr uint64_t kBatchIds = 1 << 20;

// Sizes count examples (rows to score) and ids (rows to look up). 0 leaves the choice to
// CompleteOptions().
struct BatchingOptions {
  // Largest request, together with what the package allows. 0: what that allows, but no more
  // than may be queued. One that is larger than a batch is cut, and its outputs joined.
  size_t max_request_examples = 0;
  uint64_t max_request_ids = 0;

  // Largest batch: the largest chunk of a request that is cut, and of one that is not. 0: as many
  // examples as are merged, and no less than 256, so that a large request runs in several slots at
  // once, with one slot 1024; and 2^20 ids; no more than may be queued. Others wait while it runs,
  // and a batch's buffers grow with it.
  size_t max_batch_examples = 0;
  uint64_t max_batch_ids = 0;

  // Requests are merged up to so many examples. A larger one runs alone. 0: 256, and never more
  // than a batch may hold: beyond some hundreds an example costs no less, and all that are in a
  // batch wait for it. Raise it where a model gains from more; 1: none are merged.
  size_t merge_examples = 0;

  // Most examples and ids waiting at once. Beyond this, requests are refused at once rather
  // than served late. 0: eight of the largest requests, of at least 4096 examples and 2^20 ids.
  size_t max_queued_examples = 0;
  uint64_t max_queued_ids = 0;

  // Most memory of requests waiting at once, in bytes, at least 1. The batch that runs may
  // hold as much again. Raise it where one message is large.
  uint64_t max_queued_bytes = 256 << 20;

  // Longest batch, as predicted, that the thread which submits a request runs itself while the
  // model is idle: two hand-overs between threads fewer. 0: none. That thread reads no other
  // request meanwhile; lower it where those behind notice.
  std::chrono::microseconds max_inline{500};

  // Batches that run at once, at least 1: as many as the model has slots.
  size_t slots = 1;
};

// The options without zeros, for a package that allows one request `package`. Refuses a queue
// shorter than a batch or a request that was asked for (kInvalidArgument).
Result<BatchingOptions> CompleteOptions(const BatchingOptions& asked, const Limits& package);

}  // namespace embershard
