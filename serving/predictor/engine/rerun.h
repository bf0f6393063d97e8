// A batch for which the model failed, run again in parts: only those fail whose fault it is.

#ifndef EMBERSHARD_ENGINE_RERUN_H_
#define EMBERSHARD_ENGINE_RERUN_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "batching/request.h"
#include "engine/batch_runner.h"

namespace embershard {

// Whether a request still waits for its answer. Any thread.
using IsWanted = std::function<bool(const Request&)>;

// Most runs of parts of one batch, and most of them where none succeeds: enough to find one request
// among 4096, and several among fewer. A model that fails for whatever it is given costs no more
// than about two batches.
inline constexpr int kRerunsMax = 64;
inline constexpr int kRerunsInVain = 16;

// Runs the halves of a batch, then the halves of those for which the model fails again: one request
// that makes it fail is found in about the time of two batches, while one by one would take as many
// runs as there are requests. What is not found when the runs are used up fails with its part.
// The requests stand by deadline, as the queue has them; what is not `wanted` any more at either
// end of a part is not run again.
//
// Gives what BatchRunner::Run() does, but with a status for each request, and adds to `times`.
// REQUIRES: at least two requests, which have `failed` as one batch.
std::vector<Result<Response>> RunInHalves(BatchRunner* runner,
                                          std::span<const std::unique_ptr<Request>> requests,
                                          const Status& failed, const IsWanted& wanted,
                                          BatchTimes* times);

}  // namespace embershard

#endif  // EMBERSHARD_ENGINE_RERUN_H_
