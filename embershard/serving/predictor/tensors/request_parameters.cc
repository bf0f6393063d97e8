#include "tensors/request_parameters.h"

#include <limits>

namespace embershard {
namespace {

Status Refuse(std::string_view key, const char* expected) {
  return InvalidArgument("parameter '", key, "': expected ", expected);
}

bool IsZero(const ParameterValue& value) {
  const auto* const text = std::get_if<std::string_view>(&value);
  return text != nullptr ? text->empty() : WholeNumber(value) == 0;
}

bool IsTrue(const ParameterValue& value) {
  const bool* const boolean = std::get_if<bool>(&value);
  return boolean != nullptr && *boolean;
}

}  // namespace

std::optional<int64_t> WholeNumber(const ParameterValue& value) {
  if (const auto* const number = std::get_if<int64_t>(&value)) return *number;
  const auto* const number = std::get_if<uint64_t>(&value);
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (number == nullptr || *number > kMost) return {};
  return static_cast<int64_t>(*number);
}

Status NoSequences(std::string_view key) {
  return Refuse(key, "none: sequences of requests are not served");
}

Status ReadParameter(std::string_view key, const ParameterValue& value, RequestParameters* read) {
  const std::optional<int64_t> number = WholeNumber(value);
  if (key == "priority") {
    if (!number) return Refuse(key, "a whole number");
    read->priority = *number;
  } else if (key == "num_examples") {
    if (!number) return Refuse(key, "a whole number");
    read->num_examples = number;
  } else if (key == "timeout") {
    if (!number || *number < 0) return Refuse(key, "microseconds, a whole number of at least 0");
  } else if (key == "traffic_key") {
    const auto* const text = std::get_if<std::string_view>(&value);
    if (text == nullptr || text->size() > kTrafficKeyBytesMax) {
      return Refuse(key, "a text of at most 1024 bytes");
    }
  } else if (key == "sequence_id") {
    if (!IsZero(value)) return NoSequences(key);
  } else if (key == "sequence_start" || key == "sequence_end") {
    if (IsTrue(value)) return NoSequences(key);
  } else if (key != "triton_enable_empty_final_response") {  // No effect: one answer per request.
    return Refuse(key, "one of 'num_examples', 'priority', 'timeout', 'traffic_key'");
  }
  return {};
}

}  // namespace embershard
