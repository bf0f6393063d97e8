// The checks every request passes before it may wait with others.

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

// Checks a request against the model's manifest and fills num_ids of it and its lists. Any
// thread. Refusals are kInvalidArgument and name feature, example, position, expected and
// got, for example
//   feature 'item': id -5 at example 1, position 0 is not in 0..1999999 (policy: reject)
//   feature 'history': lengths sum to 7, but there are 6 values
// Inputs in request scope have one list or value, so no example is named. Counts come
// first: of a request beyond `limits` no value is looked at. One made for another schema
// (Request::schema) is refused with kFailedPrecondition.
Status CheckRequest(const Model& model, const Limits& limits, Request* request);

// The part of the above that must come before anything is multiplied by num_examples. A
// request without examples may want outputs in request scope, a user's vector for one.
Status CheckNumExamples(const Schema& schema, const Limits& limits, const Request& request);

// How a refusal begins that is about one input: "feature 'item': ".
std::string Feature(const std::string& name);

// The refusal of an input that is there already.
Status GivenTwice(const std::string& name);

// That, where `seen` has the input; adds it there.
Status Once(const std::string& name, size_t position, std::vector<bool>* seen);

// The sum of an input's lengths, which is below 2^31; refuses a negative length.
Result<uint64_t> SumLengths(const SparseInput& input, Unaligned<int32_t> lengths);

}  // namespace embershard
