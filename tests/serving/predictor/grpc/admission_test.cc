// Clients are told when a request is refused because its deadline would pass first. The engine's
// clock is the test's: it is so far behind that no client's deadline is near.

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "engine/stepped.h"
#include "grpc/predict_stream_fixture.h"
#include "grpc/serving_fixture.h"
#include "grpc/status_map.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr char kWords[] =
    "the deadline would pass first: 0 examples are waiting; try again after a pause";

// A model whose batches take an hour, and an engine whose clock is two hours behind. A request
// after a running batch would end in two hours by that clock, which is now. The margin of a quarter
// adds half an hour, and clients wait only 30 s.
class GrpcAdmissionTest : public ::testing::Test {
 protected:
  GrpcAdmissionTest() {
    Call first(serving_.stub(), NamedMessage());
    stepped_.WaitUntilRunning();
    clock_.Advance(hours(1));
    stepped_.LetGo();
    ExpectGood(first.Wait(), first.response());
  }
  ~GrpcAdmissionTest() override { stepped_.LetAllGo(); }

  uint64_t Count(Outcome outcome) { return Counted(&serving_).Count(outcome); }

  SteppedClock clock_{Clock::now() - hours(3)};
  SteppedModel stepped_;
  Serving serving_{stepped_.model(), {.batching = {}, .now = clock_.now()}};
};

// The half hour is reduced by the clients' 30 s and by the time of the test.
void ExpectPushback(long milliseconds) {
  EXPECT_GT(milliseconds, 1'000'000);
  EXPECT_LE(milliseconds, 30 * 60'000 - 30'000 + 1);
}

TEST_F(GrpcAdmissionTest, ACallIsRefusedAtOnceWithThePauseAfterWhichToRetry) {
  Call running(serving_.stub(), NamedMessage());
  stepped_.WaitUntilRunning();
  Call refused(serving_.stub(), NamedMessage());
  EXPECT_EQ(refused.Wait().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.Wait().error_message(), kWords);
  const auto& metadata = refused.context().GetServerTrailingMetadata();
  const auto pushback = metadata.find(kRetryPushbackKey);
  ASSERT_NE(pushback, metadata.end());
  ExpectPushback(std::stol(std::string(pushback->second.data(), pushback->second.size())));
  EXPECT_FALSE(running.Done());
  EXPECT_EQ(Count(Outcome::kDeadlineInfeasible), 1U);

  stepped_.LetAllGo();
  ExpectGood(running.Wait(), running.response());
  // An idle model refuses no request, however long the last batch took.
  EXPECT_TRUE(WaitFor([this] {
    v1::PredictResponse response;
    return serving_.Predict(NamedMessage(), &response).ok();
  }));
}

TEST_F(GrpcAdmissionTest, ARequestOfAStreamIsRefusedAloneWithThePauseInItsAnswer) {
  Stream stream(serving_.stub());
  ASSERT_TRUE(stream.Write(Asking("runs")));
  stepped_.WaitUntilRunning();
  v1::PredictRequest hurried = Asking("hurried");
  hurried.set_timeout_ms(30'000);
  ASSERT_TRUE(stream.Write(hurried));
  const v1::PredictResponse answer = stream.Read();
  ExpectFailure("hurried", grpc::StatusCode::RESOURCE_EXHAUSTED, answer);
  EXPECT_EQ(answer.failure().message(), kWords);
  ExpectPushback(answer.failure().retry_pushback_ms());
  EXPECT_EQ(Count(Outcome::kDeadlineInfeasible), 1U);
  stepped_.LetAllGo();
  ExpectGoodFor("runs", stream.Read());
}

}  // namespace
}  // namespace embershard::rpc
