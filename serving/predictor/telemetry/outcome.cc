#include "telemetry/outcome.h"

#include <iterator>

namespace embershard {
namespace {

// In the order of Outcome.
constexpr OutcomeName kNames[] = {
    {"OK", "", ""},
    {"INVALID_ARGUMENT", "malformed", "OTHER"},
    {"INVALID_ARGUMENT", "refused", "OTHER"},
    {"INVALID_ARGUMENT", "too_large", "OTHER"},
    {"NOT_FOUND", "not_found", "OTHER"},
    {"FAILED_PRECONDITION", "stale_schema", "OTHER"},
    {"RESOURCE_EXHAUSTED", "queue_full", "REJECTED"},
    {"RESOURCE_EXHAUSTED", "deadline_infeasible", "REJECTED"},
    {"DEADLINE_EXCEEDED", "expired", "REJECTED"},
    {"DEADLINE_EXCEEDED", "abandoned", "CANCELED"},
    {"UNAVAILABLE", "shutting_down", "REJECTED"},
    {"INTERNAL", "model_failed", "BACKEND"},
    {"INTERNAL", "not_finite", "BACKEND"},
    {"INTERNAL", "out_of_memory", "BACKEND"},
};
static_assert(std::size(kNames) == kOutcomes);

}  // namespace

OutcomeName NameOf(Outcome outcome) { return kNames[static_cast<size_t>(outcome)]; }

Outcome OutcomeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return Outcome::kOk;
    case StatusCode::kInvalidArgument:
      if (status.reason() == StatusReason::kMalformed) return Outcome::kMalformed;
      if (status.reason() == StatusReason::kTooLarge) return Outcome::kTooLarge;
      return Outcome::kRefused;
    case StatusCode::kNotFound:
      return Outcome::kNotFound;
    case StatusCode::kFailedPrecondition:
      return Outcome::kStaleSchema;
    case StatusCode::kResourceExhausted:
      return status.reason() == StatusReason::kDeadlineInfeasible ? Outcome::kDeadlineInfeasible
                                                                  : Outcome::kQueueFull;
    case StatusCode::kDeadlineExceeded:
      return status.reason() == StatusReason::kAbandoned ? Outcome::kAbandoned : Outcome::kExpired;
    case StatusCode::kUnavailable:
      return Outcome::kShuttingDown;
    case StatusCode::kBadPackage:
    case StatusCode::kInternal:
      break;
  }
  if (status.reason() == StatusReason::kNotFinite) return Outcome::kNotFinite;
  if (status.reason() == StatusReason::kOutOfMemory) return Outcome::kOutOfMemory;
  return Outcome::kModelFailed;
}

}  // namespace embershard
