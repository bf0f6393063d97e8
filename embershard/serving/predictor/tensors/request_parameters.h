// What a request says beside its tensors, in protocols whose requests have named parameters.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "base/status.h"

namespace embershard {

// Of the types that such protocols have. Empty: of none of them.
using ParameterValue =
    std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string_view>;

// Most bytes of a traffic key: see ServedModels::Route().
inline constexpr size_t kTrafficKeyBytesMax = 1024;

struct RequestParameters {
  std::optional<int64_t> num_examples;
  int64_t priority = 0;  // As TensorRequest has it.
};

// Absent: not a whole number, or not one of at most 63 bits.
std::optional<int64_t> WholeNumber(const ParameterValue& value);

// The refusal of a parameter that makes a request part of a sequence.
Status NoSequences(std::string_view key);

// Reads one parameter into `read`. Refuses what it does not know (kInvalidArgument): a word that is
// spelt wrong would be one that is not heard. A deadline and a traffic key are only checked: both
// are read before.
Status ReadParameter(std::string_view key, const ParameterValue& value, RequestParameters* read);

}  // namespace embershard
