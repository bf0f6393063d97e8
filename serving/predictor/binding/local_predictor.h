// A package in this process: arrays in, arrays out.

#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <vector>

#include "binding/arguments.h"
#include "engine/engine.h"

namespace embershard::binding {

class LocalPredictor {
 public:
  // Loads FBGEMM, opens the package, runs its samples. Raises where that fails.
  explicit LocalPredictor(const PredictorArguments& arguments);
  ~LocalPredictor();  // Without the GIL.

  // A serialized GetModelResponse.
  pybind11::bytes GetModel() const;

  const ProgramReport& program() const { return engine_->program(); }

  // Runs requests merged. Each is (num_examples, request_dense, example_dense, lengths, values,
  // weights), as SampleRequest has them, and is answered with ({output: array}, {feature: number
  // of unknown ids}) or an exception. Requests are views of the arrays. Raises where an output of
  // `outputs` is unknown; empty: all.
  pybind11::list PredictMerged(const std::vector<pybind11::tuple>& requests,
                               const std::vector<std::string>& outputs);

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace embershard::binding
