#include "grpc/open_inference/oip_parameters.h"

#include <algorithm>

namespace embershard::rpc {
namespace {

using inference::InferParameter;

// A year: more is as good as none, and fits into nanoseconds.
constexpr int64_t kTimeoutMaxUs = int64_t{365} * 24 * 3600 * 1'000'000;

ParameterValue ValueOf(const InferParameter& value) {
  if (value.has_bool_param()) return value.bool_param();
  if (value.has_int64_param()) return value.int64_param();
  if (value.has_uint64_param()) return value.uint64_param();
  if (value.has_double_param()) return value.double_param();
  if (value.has_string_param()) return std::string_view(value.string_param());
  return {};
}

}  // namespace

Result<RequestParameters> ReadParameters(const OipParameterMap& parameters) {
  RequestParameters read;
  for (const auto& [key, value] : parameters) {
    if (Status status = ReadParameter(key, ValueOf(value), &read); !status.ok()) return status;
  }
  return read;
}

std::chrono::nanoseconds TimeoutOf(const OipParameterMap& parameters) {
  const auto found = parameters.find("timeout");
  if (found == parameters.end()) return {};
  const int64_t microseconds = WholeNumber(ValueOf(found->second)).value_or(0);
  return std::chrono::microseconds(std::clamp<int64_t>(microseconds, 0, kTimeoutMaxUs));
}

std::string_view TrafficKeyOf(const OipParameterMap& parameters) {
  const auto found = parameters.find("traffic_key");
  if (found == parameters.end() || !found->second.has_string_param()) return {};
  return found->second.string_param();
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

}  // namespace embershard::rpc
