// The checks every request passes before it may wait with others.

#ifndef EMBERSHARD_BATCHING_DOOR_H_
#define EMBERSHARD_BATCHING_DOOR_H_

#include "base/status.h"
#include "batching/request.h"
#include "model/model.h"

namespace embershard {

// Checks a request against the model's manifest and fills num_ids. Any thread.
// Refusals are kInvalidArgument and name feature, example, position, expected and
// got, for example
//   feature 'item': id -5 at example 1, position 0 is not in 0..1999999 (policy: reject)
//   feature 'history': lengths sum to 7, but there are 6 values
Status CheckRequest(const Model& model, Request* request);

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_DOOR_H_
