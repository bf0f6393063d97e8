// Requests made by the names of a manifest: for programs in C++ that have the engine in their own
// process. docs/cpp.md shows one.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "batching/request.h"
#include "engine/engine.h"

namespace embershard {

struct NamedDense {
  std::string name;
  std::vector<float> values;  // [num_examples]; [1] in request scope.
};

struct NamedSparse {
  std::string name;
  // [num_examples] lists of ids, one in request scope. HashString() makes ids of strings.
  std::vector<std::vector<int64_t>> lists;
  std::vector<std::vector<float>> weights = {};  // Of a weighted input: one for each id.
};

// What a caller says. An input that is left out is empty, or has its default.
struct NamedInputs {
  uint32_t num_examples = 0;
  std::vector<NamedDense> dense = {};
  std::vector<NamedSparse> sparse = {};
  std::vector<std::string> outputs = {};  // Names of those wanted. Empty: all.
};

// For Engine::Predict(): a request that keeps a copy of `inputs`, without `answer` and deadline,
// which the caller sets. It is for engines of the same schema. Refuses names that the model does
// not have (kInvalidArgument, an output kNotFound), an input that is given twice, and weights that
// do not go with the ids; the rest is left to CheckRequest().
Result<std::unique_ptr<Request>> MakeRequest(const Engine& engine, const NamedInputs& inputs);

// Row-major values by name of the output: [num_examples, width], or [1, width] in request scope.
using NamedOutputs = std::map<std::string, std::vector<float>, std::less<>>;

// Asks, and waits for the answer, at most for `timeout` (kDeadlineExceeded) and 100 ms. Any thread:
// what several ask at once is merged into batches. Not from the answer of another request. Other
// failures are those of MakeRequest() and Engine::Predict().
Result<NamedOutputs> PredictNamed(Engine* engine, const NamedInputs& inputs,
                                  Clock::duration timeout);

}  // namespace embershard
