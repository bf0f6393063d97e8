// Checks that every request must pass before it is queued.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unaligned.h"
#include "batching/request.h"
#include "model/model.h"

namespace embershard {

// Checks a request against the model's manifest, and fills its num_ids and those of its lists.
// Thread-safe. Errors are kInvalidArgument and name feature, example, position, expected and
// received value, for example
//   feature 'item': id -5 at example 1, position 0 is not in 0..1999999 (policy: reject)
//   feature 'history': lengths sum to 7, but there are 6 values
// Inputs in request scope have one list or value, so their errors name no example. Counts are
// checked first: no value of a request beyond `limits` is read. A request made for another schema
// (Request::schema) fails with kFailedPrecondition.
Status CheckRequest(const Model& model, const Limits& limits, Request* request);

// The part of CheckRequest() that must come before anything is multiplied by num_examples. A
// request without examples may ask for outputs in request scope, such as a user's vector.
Status CheckNumExamples(const Schema& schema, const Limits& limits, const Request& request);

// Start of an error about one input: "feature 'item': ".
std::string Feature(const std::string& name);

Status GivenTwice(const std::string& name);

// Returns GivenTwice() if the input at `position` was seen before.
Status Once(const std::string& name, size_t position, std::vector<bool>* seen);

// Fails for a negative length, and for a sum of 2^31 or more.
Result<uint64_t> SumLengths(const SparseInput& input, Unaligned<int32_t> lengths);

}  // namespace embershard
