// An instance of a model in Triton: runs the batches that Triton's batcher closes.

#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "model/slot.h"
#include "triton/triton_model.h"

namespace embershard::triton {

// One call at a time, from any thread.
class TritonInstance {
 public:
  // Runs the model's samples, alone and merged: kBadPackage if their outputs are not what the
  // package says. Refuses kinds other than processors. `shared` must outlive it.
  static Result<std::unique_ptr<TritonInstance>> Start(TRITONBACKEND_ModelInstance* instance,
                                                       TritonModel* shared);

  // Runs `requests` as one batch, or as few as the budget allows; answers each and releases it. A
  // request that is refused, fails or has been left by its client disturbs no other. Not ok: there
  // was no memory to begin with, and the requests are as they were.
  Status Execute(std::span<TRITONBACKEND_Request* const> requests);

 private:
  TritonInstance(TRITONBACKEND_ModelInstance* instance, TritonModel* shared)
      : instance_(instance), shared_(shared) {}

  TRITONBACKEND_ModelInstance* const instance_;
  TritonModel* const shared_;
  Slot buffers_;  // The slot that its batches lease.
};

}  // namespace embershard::triton
