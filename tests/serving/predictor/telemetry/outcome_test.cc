#include "telemetry/outcome.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace embershard {
namespace {

struct Case {
  StatusCode code;
  StatusReason reason;
  const char* name_of_code;
  const char* name_of_reason;
  const char* triton;
};

// Every outcome there is, by hand.
const Case kCases[] = {
    {StatusCode::kOk, StatusReason::kUnstated, "OK", "", ""},
    {StatusCode::kInvalidArgument, StatusReason::kMalformed, "INVALID_ARGUMENT", "malformed",
     "OTHER"},
    {StatusCode::kInvalidArgument, StatusReason::kUnstated, "INVALID_ARGUMENT", "refused", "OTHER"},
    {StatusCode::kInvalidArgument, StatusReason::kTooLarge, "INVALID_ARGUMENT", "too_large",
     "OTHER"},
    {StatusCode::kNotFound, StatusReason::kUnstated, "NOT_FOUND", "not_found", "OTHER"},
    {StatusCode::kFailedPrecondition, StatusReason::kUnstated, "FAILED_PRECONDITION",
     "stale_schema", "OTHER"},
    {StatusCode::kResourceExhausted, StatusReason::kUnstated, "RESOURCE_EXHAUSTED", "queue_full",
     "REJECTED"},
    {StatusCode::kResourceExhausted, StatusReason::kDeadlineInfeasible, "RESOURCE_EXHAUSTED",
     "deadline_infeasible", "REJECTED"},
    {StatusCode::kDeadlineExceeded, StatusReason::kUnstated, "DEADLINE_EXCEEDED", "expired",
     "REJECTED"},
    {StatusCode::kDeadlineExceeded, StatusReason::kAbandoned, "DEADLINE_EXCEEDED", "abandoned",
     "CANCELED"},
    {StatusCode::kUnavailable, StatusReason::kUnstated, "UNAVAILABLE", "shutting_down", "REJECTED"},
    {StatusCode::kUnavailable, StatusReason::kWithdrawn, "UNAVAILABLE", "withdrawn", "REJECTED"},
    {StatusCode::kInternal, StatusReason::kUnstated, "INTERNAL", "model_failed", "BACKEND"},
    {StatusCode::kInternal, StatusReason::kNotFinite, "INTERNAL", "not_finite", "BACKEND"},
    {StatusCode::kInternal, StatusReason::kOutOfMemory, "INTERNAL", "out_of_memory", "BACKEND"},
};

TEST(Outcome, IsAPairOfCodeAndReasonForEveryStatus) {
  std::set<Outcome> seen;
  for (const Case& test_case : kCases) {
    const Outcome outcome = OutcomeOf(Status(test_case.code, "", test_case.reason));
    EXPECT_STREQ(NameOf(outcome).code, test_case.name_of_code);
    EXPECT_STREQ(NameOf(outcome).reason, test_case.name_of_reason);
    EXPECT_STREQ(NameOf(outcome).triton, test_case.triton);
    seen.insert(outcome);
  }
  EXPECT_EQ(seen.size(), kOutcomes);
}

TEST(Outcome, EveryOneIsNamedOnce) {
  std::set<std::pair<std::string, std::string>> names;
  for (size_t i = 0; i < kOutcomes; ++i) {
    const OutcomeName name = NameOf(static_cast<Outcome>(i));
    names.emplace(name.code, name.reason);
  }
  EXPECT_EQ(names.size(), kOutcomes);
}

TEST(Outcome, IgnoresAReasonThatDoesNotGoWithTheCode) {
  EXPECT_EQ(OutcomeOf(Status(StatusCode::kOk, "", StatusReason::kOutOfMemory)), Outcome::kOk);
  EXPECT_EQ(OutcomeOf(Status(StatusCode::kInvalidArgument, "", StatusReason::kAbandoned)),
            Outcome::kRefused);
  EXPECT_EQ(OutcomeOf(Status(StatusCode::kInternal, "", StatusReason::kMalformed)),
            Outcome::kModelFailed);
}

TEST(Outcome, OfABadPackageIsThatOfAModelThatFailed) {
  EXPECT_EQ(OutcomeOf(BadPackage("a table is gone")), Outcome::kModelFailed);
}

}  // namespace
}  // namespace embershard
