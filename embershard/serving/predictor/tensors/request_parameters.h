#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "base/status.h"

namespace embershard {

// The value of a parameter. std::monostate if its type is none of these.
using ParameterValue =
    std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string_view>;

// See ServedModels::Route().
inline constexpr size_t kTrafficKeyBytesMax = 1024;

struct RequestParameters {
  std::optional<int64_t> num_examples;
  int64_t priority = 0;  // See TensorRequest.
};

// Absent if the value is not an integer, or does not fit into an int64_t.
std::optional<int64_t> WholeNumber(const ParameterValue& value);

Status NoSequences(std::string_view key);

// Reads one parameter into `read`. Fails with kInvalidArgument for unknown parameters, so that a
// misspelled one is not ignored. Only checks the timeout and the traffic key, which are read
// earlier.
Status ReadParameter(std::string_view key, const ParameterValue& value, RequestParameters* read);

}  // namespace embershard
