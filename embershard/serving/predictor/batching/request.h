// A predict request on its way through the server: protocol-free, made of views
// over the bytes it arrived in.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unaligned.h"

namespace embershard {

// One dense input's values: `values[i * stride]` is example i's (request scope:
// only i = 0). Empty values: the input was left out.
struct DenseView {
  Unaligned<float> values;
  size_t stride = 1;
};

// One sparse input's lists. Empty lengths: the input was left out (all lists empty).
struct SparseView {
  Unaligned<int32_t> lengths;  // [1] in request scope, [num_examples] in example scope.
  Unaligned<int64_t> values;   // [sum of lengths]
  Unaligned<float> weights;    // [sum of lengths] for weighted inputs, else empty.
  uint64_t num_ids = 0;        // Filled by CheckRequest(): values that max_ids leaves.
};

struct UnknownIdCount {
  size_t sparse_input = 0;  // Position in Schema::sparse.
  uint64_t count = 0;
};

struct Timing {
  uint32_t queue_us = 0;
  uint32_t lookup_us = 0;
  uint32_t dense_us = 0;
  uint32_t total_us = 0;
};

struct ResponseOutput {
  size_t output = 0;          // Position in Schema::outputs.
  std::vector<float> values;  // [num_examples or 1, width]
};

struct Response {
  std::vector<ResponseOutput> outputs;
  std::vector<UnknownIdCount> unknown_ids;  // Only where not zero.
  Timing timing;
  uint64_t num_ids = 0;  // Of the request, if it is valid.
  // Where the status is kResourceExhausted: after so long there will be room. Zero: not known.
  std::chrono::nanoseconds retry_after{0};
};

struct Request;
class SplitRequest;

// By what a caller finds its request again to take it back. Lives at least until the request
// is answered.
struct CancellationHandle {
  Request* request = nullptr;  // The queue's, under its lock. Null: nothing to take back.
};

enum class Priority {
  kInteractive,
  kBackground,  // Runs in what interactive ones leave free, and now and then before them.
};

struct Request {
  // Schema::fingerprint of the engine that it was made for. An engine with another schema refuses
  // it. Absent: not checked.
  std::optional<uint64_t> schema;

  uint32_t num_examples = 0;
  std::vector<DenseView> dense;        // One for each of Schema::dense.
  std::vector<SparseView> sparse;      // One for each of Schema::sparse.
  std::vector<size_t> outputs_wanted;  // Positions in Schema::outputs, ascending.

  Priority priority = Priority::kInteractive;

  Clock::time_point arrival;
  Clock::time_point deadline = Clock::time_point::max();

  // True for a shadow's copy. No client waits for it, so its queue time is not counted.
  bool is_copy = false;

  // Whether nobody waits for the answer any more. Any thread; empty: never so.
  std::function<bool()> abandoned;

  // Filled by CheckRequest(): ids that will be looked up.
  uint64_t num_ids = 0;

  // Memory that the message under the views takes.
  uint64_t held_bytes = 0;

  // What the views lie over. One whose deadline passes while it runs is answered before the
  // model has done with it, so these bytes may outlive the answer.
  std::shared_ptr<const void> bytes;

  // Called exactly once, from any thread, must not throw or block. Where the status is not ok
  // the response holds nothing but timings, num_ids and retry_after, as far as the request came.
  std::function<void(Status, Response)> answer;

  CancellationHandle* cancellation = nullptr;  // Null: nobody will take it back.

  // Whether the thread that submits it may run it, and submit no other meanwhile.
  bool may_run_inline = true;

  // Of one that is cut, else null; and where a chunk begins in the request that it is of.
  std::shared_ptr<SplitRequest> split;
  uint32_t first_example = 0;

  // The queue's own, under its lock.
  uint64_t turn = 0;  // Breaks ties of deadlines.
  bool runs = false;  // Is in a batch that runs.
};

using Batch = std::vector<std::unique_ptr<Request>>;

}  // namespace embershard
