// A predict request in any protocol, as views over the bytes in which it arrived.

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

// Values of one dense input: `values[i * stride]` belongs to example i (in request scope only
// i = 0). Empty if the input was left out.
struct DenseView {
  Unaligned<float> values;
  size_t stride = 1;
};

// Lists of one sparse input. Empty lengths mean that it was left out, so that all lists are empty.
struct SparseView {
  Unaligned<int32_t> lengths;  // [1] in request scope, [num_examples] in example scope.
  Unaligned<int64_t> values;   // [sum of lengths]
  Unaligned<float> weights;    // [sum of lengths] for weighted inputs, otherwise empty.
  uint64_t num_ids = 0;        // Values left after truncation to max_ids; set by CheckRequest().
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
  std::vector<UnknownIdCount> unknown_ids;  // Only inputs with unknown ids.
  Timing timing;
  uint64_t num_ids = 0;  // Ids of the request, if it is valid.
  // With status kResourceExhausted: time until there is room. Zero: not known.
  std::chrono::nanoseconds retry_after{0};
};

struct Request;
class SplitRequest;

// Lets the caller cancel its request. Must live until the request is answered.
struct CancellationHandle {
  Request* request = nullptr;  // Guarded by the queue's lock. Null: nothing to cancel.
};

enum class Priority {
  kInteractive,
  kBackground,  // Uses capacity that interactive requests leave, and at least 1/8 of the batches.
};

struct Request {
  // Schema::fingerprint of the engine that this request was made for. Absent: not checked.
  std::optional<uint64_t> schema;

  uint32_t num_examples = 0;
  std::vector<DenseView> dense;        // One for each of Schema::dense.
  std::vector<SparseView> sparse;      // One for each of Schema::sparse.
  std::vector<size_t> outputs_wanted;  // Positions in Schema::outputs, ascending.

  Priority priority = Priority::kInteractive;

  Clock::time_point arrival;
  Clock::time_point deadline = Clock::time_point::max();

  // True for the copy that a shadow gets. No client waits for it, so its queue time is not counted.
  bool is_copy = false;

  // True if nobody waits for the answer any more. Called on any thread. Empty: never.
  std::function<bool()> abandoned;

  // Ids to look up; set by CheckRequest().
  uint64_t num_ids = 0;

  uint64_t held_bytes = 0;

  // Keeps the bytes under the views alive. If the deadline passes while the request runs, it is
  // answered before the model has finished, so the bytes may outlive the answer.
  std::shared_ptr<const void> bytes;

  // Called exactly once, on any thread; must not throw or block. If the status is not ok, the
  // response holds only timings, num_ids and retry_after, as far as they are known.
  std::function<void(Status, Response)> answer;

  CancellationHandle* cancellation = nullptr;  // Null: it cannot be cancelled.

  // True if the submitting thread may run the request itself, and so submit no other meanwhile.
  bool may_run_inline = true;

  std::shared_ptr<SplitRequest> split;  // Null unless the request is split into chunks.
  uint32_t first_example = 0;           // For a chunk: its first example in the whole request.

  // Guarded by the queue's lock.
  uint64_t turn = 0;  // Breaks ties between deadlines.
  bool runs = false;  // True while it is part of a running batch.
};

using Batch = std::vector<std::unique_ptr<Request>>;

}  // namespace embershard
