// Requests from named inputs, for C++ programs that run the engine themselves. See docs/cpp.md.

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
  // [num_examples] lists of ids; one list in request scope. HashString() converts strings to ids.
  std::vector<std::vector<int64_t>> lists;
  std::vector<std::vector<float>> weights = {};  // Weighted inputs: one weight per id.
};

// Inputs that are left out are empty, or have their default.
struct NamedInputs {
  uint32_t num_examples = 0;
  std::vector<NamedDense> dense = {};
  std::vector<NamedSparse> sparse = {};
  std::vector<std::string> outputs = {};  // Names of wanted outputs. Empty: all.
};

// Makes a request for Engine::Predict(), for engines with the same schema. It copies `inputs`; the
// caller sets `answer` and the deadline. Fails for unknown inputs (kInvalidArgument) and outputs
// (kNotFound), for an input given twice, and for weights that do not match the ids. CheckRequest()
// checks everything else.
Result<std::unique_ptr<Request>> MakeRequest(const Engine& engine, const NamedInputs& inputs);

// Row-major values by output: [num_examples, width], or [1, width] in request scope.
using NamedOutputs = std::map<std::string, std::vector<float>, std::less<>>;

// Runs a request and waits for its answer, at most `timeout` + 100 ms (kDeadlineExceeded).
// Thread-safe: concurrent calls are merged into batches. Must not be called from an answer. Fails
// like MakeRequest() and Engine::Predict().
Result<NamedOutputs> PredictNamed(Engine* engine, const NamedInputs& inputs,
                                  Clock::duration timeout);

}  // namespace embershard
