// Which tensors a model takes and gives. docs/protocols.md is the manual.
//
//   tensor            datatype  shape                 holds
//   <dense>           FP32      [B], request scope [1]
//   <sparse>.values   INT64     [V]                   a KeyedJaggedTensor's words, of one key
//   <sparse>.lengths  INT32     [B], request scope [1]
//   <sparse>.weights  FP32      [V]                   weighted inputs alone
//   DENSE             FP32      [B, F_e]              all dense inputs in example scope
//   REQUEST_DENSE     FP32      [F_r]                 all dense inputs in request scope
//   LENGTHS           INT32     [L]                   of all sparse inputs in order: B each, or 1
//   VALUES            INT64     [V]                   of all sparse inputs in order
//   WEIGHTS           FP32      [W]                   of the weighted ones in order
//
// B examples; F_e, F_r dense inputs in example and in request scope.

#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"
#include "tensors/tensor.h"

namespace embershard {

inline constexpr std::string_view kDense = "DENSE";
inline constexpr std::string_view kRequestDense = "REQUEST_DENSE";
inline constexpr std::string_view kLengths = "LENGTHS";
inline constexpr std::string_view kValues = "VALUES";
inline constexpr std::string_view kWeights = "WEIGHTS";

// Behind the name of a sparse input.
inline constexpr std::string_view kLengthsSuffix = ".lengths";
inline constexpr std::string_view kValuesSuffix = ".values";
inline constexpr std::string_view kWeightsSuffix = ".weights";

// Those by input in the order of the schema, then those that pack what the model has. A model with
// an input whose own tensor is called like a later one does not have that one.
std::vector<TensorSpec> InputSpecs(const Schema& schema);

// Why a model has no input tensor of this name: it lists those of the sparse input that the name
// begins with, else all by input.
Status UnknownTensor(const Schema& schema, std::string_view name);

// In the order of the schema. Outputs in request scope have one row.
std::vector<TensorSpec> OutputSpecs(const Schema& schema);

}  // namespace embershard
