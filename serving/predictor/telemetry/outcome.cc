#include "telemetry/outcome.h"

namespace embershard {

OutcomeName NameOf(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOk:
      return {"OK", "", ""};
    case Outcome::kMalformed:
      return {"INVALID_ARGUMENT", "malformed", "OTHER"};
    case Outcome::kRefused:
      return {"INVALID_ARGUMENT", "refused", "OTHER"};
    case Outcome::kTooLarge:
      return {"INVALID_ARGUMENT", "too_large", "OTHER"};
    case Outcome::kNotFound:
      return {"NOT_FOUND", "not_found", "OTHER"};
    case Outcome::kStaleSchema:
      return {"FAILED_PRECONDITION", "stale_schema", "OTHER"};
    case Outcome::kQueueFull:
      return {"RESOURCE_EXHAUSTED", "queue_full", "REJECTED"};
    case Outcome::kDeadlineInfeasible:
      return {"RESOURCE_EXHAUSTED", "deadline_infeasible", "REJECTED"};
    case Outcome::kExpired:
      return {"DEADLINE_EXCEEDED", "expired", "REJECTED"};
    case Outcome::kAbandoned:
      return {"DEADLINE_EXCEEDED", "abandoned", "CANCELED"};
    case Outcome::kShuttingDown:
      return {"UNAVAILABLE", "shutting_down", "REJECTED"};
    case Outcome::kModelFailed:
      return {"INTERNAL", "model_failed", "BACKEND"};
    case Outcome::kNotFinite:
      return {"INTERNAL", "not_finite", "BACKEND"};
    case Outcome::kOutOfMemory:
      break;
  }
  return {"INTERNAL", "out_of_memory", "BACKEND"};
}

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
