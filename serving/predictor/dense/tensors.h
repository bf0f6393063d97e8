// Batches as torch takes them: what every kind of program shares. Includes torch.

#pragma once

#include <ATen/core/TensorBody.h>

#include <exception>
#include <string>
#include <vector>

#include "dense/dense_program.h"

namespace embershard {

// What went wrong, without the stack trace that torch's messages carry. Bytes that are no printable
// ASCII are written as \xNN.
std::string Reason(const std::exception& error);

// Views of the inputs of one scope: dense, pooled, then values and offsets of each of its
// sequences.
std::vector<at::Tensor> InputsOfScope(const Schema& schema, Scope scope,
                                      const DenseProgramInputs& inputs);

at::Tensor RequestOfExample(const DenseProgramInputs& inputs);

// What all programs do before torch's part of a run and after it.
class TorchProgram : public DenseProgram {
 public:
  Status Run(const DenseProgramInputs& inputs, std::vector<std::vector<float>>* outputs) final;

 protected:
  TorchProgram(const Schema& schema, int threads) : schema_(schema), threads_(threads) {}

  // What the program gives, in the order of Schema::outputs; undefined where it lacks one. May
  // throw.
  virtual std::vector<at::Tensor> Forward(const DenseProgramInputs& inputs) = 0;

  const Schema schema_;

 private:
  const int threads_;
};

// `threads`, or CoreCount() where it is 0.
int ThreadsOf(int threads);

// Runs zeros at R = 2, B = 3: an output that is missing, of a wrong shape or of a wrong
// scope shows before the first request.
Status TryOnce(DenseProgram& program, const Schema& schema);

}  // namespace embershard
