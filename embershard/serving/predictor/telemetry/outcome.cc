#include "telemetry/outcome.h"

#include <algorithm>
#include <iterator>

namespace embershard {
namespace {

struct Row {
  OutcomeName name;
  StatusCode code = StatusCode::kOk;
  StatusReason reason = StatusReason::kUnstated;
};

using enum StatusCode;
using enum StatusReason;

// One row per Outcome, in its order.
constexpr Row kRows[] = {
    {{"OK", "", ""}, kOk},
    {{"INVALID_ARGUMENT", "malformed", "OTHER"}, kInvalidArgument, kMalformed},
    {{"INVALID_ARGUMENT", "refused", "OTHER"}, kInvalidArgument},
    {{"INVALID_ARGUMENT", "too_large", "OTHER"}, kInvalidArgument, kTooLarge},
    {{"NOT_FOUND", "not_found", "OTHER"}, kNotFound},
    {{"FAILED_PRECONDITION", "stale_schema", "OTHER"}, kFailedPrecondition},
    {{"RESOURCE_EXHAUSTED", "queue_full", "REJECTED"}, kResourceExhausted},
    {{"RESOURCE_EXHAUSTED", "deadline_infeasible", "REJECTED"},
     kResourceExhausted,
     kDeadlineInfeasible},
    {{"DEADLINE_EXCEEDED", "expired", "REJECTED"}, kDeadlineExceeded},
    {{"DEADLINE_EXCEEDED", "abandoned", "CANCELED"}, kDeadlineExceeded, kAbandoned},
    {{"UNAVAILABLE", "shutting_down", "REJECTED"}, kUnavailable},
    {{"UNAVAILABLE", "withdrawn", "REJECTED"}, kUnavailable, kWithdrawn},
    {{"INTERNAL", "model_failed", "BACKEND"}, kInternal},
    {{"INTERNAL", "not_finite", "BACKEND"}, kInternal, kNotFinite},
    {{"INTERNAL", "out_of_memory", "BACKEND"}, kInternal, kOutOfMemory},
};
static_assert(std::size(kRows) == kOutcomes);

const Row* FindRow(StatusCode code, StatusReason reason) {
  return std::ranges::find_if(
      kRows, [&](const Row& row) { return row.code == code && row.reason == reason; });
}

}  // namespace

OutcomeName NameOf(Outcome outcome) { return kRows[static_cast<size_t>(outcome)].name; }

Outcome OutcomeOf(const Status& status) {
  const StatusCode code = status.code() == kBadPackage ? kInternal : status.code();
  const Row* row = FindRow(code, status.reason());
  if (row == std::end(kRows)) row = FindRow(code, kUnstated);
  return static_cast<Outcome>(row - kRows);
}

}  // namespace embershard
