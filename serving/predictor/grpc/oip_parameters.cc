#include "grpc/oip_parameters.h"

#include <algorithm>
#include <limits>

namespace embershard {
namespace {

using inference::InferParameter;

// A year: more is as good as none, and fits into nanoseconds.
constexpr int64_t kTimeoutMaxUs = int64_t{365} * 24 * 3600 * 1'000'000;

Status Refuse(const std::string& key, const char* expected) {
  return InvalidArgument("parameter '" + key + "': expected " + expected);
}

// Absent: not a whole number, or not one of at most 63 bits.
std::optional<int64_t> WholeNumber(const InferParameter& value) {
  if (value.has_int64_param()) return value.int64_param();
  if (!value.has_uint64_param()) return {};
  const uint64_t number = value.uint64_param();
  if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
  return static_cast<int64_t>(number);
}

bool IsZero(const InferParameter& value) {
  return value.has_string_param() ? value.string_param().empty() : WholeNumber(value) == 0;
}

Status ReadOne(const std::string& key, const InferParameter& value, OipParameters* read) {
  const std::optional<int64_t> number = WholeNumber(value);
  if (key == "priority") {
    if (!number) return Refuse(key, "a whole number");
    read->priority = *number;
  } else if (key == "num_examples") {
    if (!number) return Refuse(key, "a whole number");
    read->num_examples = number;
  } else if (key == "timeout") {
    if (!number || *number < 0) return Refuse(key, "microseconds, a whole number of at least 0");
  } else if (key == "sequence_id") {
    if (!IsZero(value)) return Refuse(key, "none: sequences of requests are not served");
  } else if (key == "sequence_start" || key == "sequence_end") {
    if (value.bool_param()) return Refuse(key, "none: sequences of requests are not served");
  } else if (key != "triton_enable_empty_final_response") {  // Each request has one answer.
    return Refuse(key, "one of 'num_examples', 'priority', 'timeout'");
  }
  return {};
}

}  // namespace

Result<OipParameters> ReadParameters(const OipParameterMap& parameters) {
  OipParameters read;
  for (const auto& [key, value] : parameters) {
    if (Status status = ReadOne(key, value, &read); !status.ok()) return status;
  }
  return read;
}

std::chrono::nanoseconds TimeoutOf(const OipParameterMap& parameters) {
  const auto found = parameters.find("timeout");
  if (found == parameters.end()) return {};
  const int64_t microseconds = WholeNumber(found->second).value_or(0);
  return std::chrono::microseconds(std::clamp<int64_t>(microseconds, 0, kTimeoutMaxUs));
}

Status CheckNone(const char* what, const std::string& name, const OipParameterMap& parameters) {
  if (parameters.empty()) return {};
  std::string first;  // By name, since the map has no order.
  for (const auto& [key, value] : parameters) {
    if (first.empty() || key < first) first = key;
  }
  return InvalidArgument(std::string(what) + " '" + name + "': parameter '" + first +
                         "' is not served here, expected none");
}

}  // namespace embershard
