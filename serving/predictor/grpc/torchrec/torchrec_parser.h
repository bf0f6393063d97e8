// From TorchRec's request to ours.

#ifndef EMBERSHARD_GRPC_TORCHREC_TORCHREC_PARSER_H_
#define EMBERSHARD_GRPC_TORCHREC_TORCHREC_PARSER_H_

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "batching/request.h"
#include "package/manifest.h"
#include "torchrec/predictor.pb.h"

namespace embershard::rpc {

// Fills num_examples, all outputs and the views, which lie over `message` and `ids`:
// its ids, in 64 bits. The manifest's order is that of the features:
//
//   float_features           dense inputs
//   id_list_features         sparse inputs without weights
//   id_score_list_features   weighted ones
//
// A group that is not there leaves its inputs out. Inputs in request scope are there for every
// example, as all others, and must be the same in each; the first is taken. Refusals are
// kInvalidArgument; the rest is left to CheckRequest().
Status ParseTorchRec(const predictor::PredictionRequest& message, const Schema& schema,
                     const Limits& limits, std::vector<int64_t>* ids, Request* request);

}  // namespace embershard::rpc

#endif  // EMBERSHARD_GRPC_TORCHREC_TORCHREC_PARSER_H_
