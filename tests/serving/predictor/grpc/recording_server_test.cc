// Recordings of the calls that a server receives.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grpc/recorder.h"
#include "grpc/recordings.h"
#include "grpc/server.h"
#include "grpc/serving_fixture.h"
#include "testing/scratch_folder.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using std::chrono::system_clock;

// The server offers each call once gRPC is done with it.
class RecordingServerTest : public ::testing::Test {
 protected:
  // Recording of a server while `ask` was called.
  Recording RecordedBy(const std::function<void(Serving*)>& ask) {
    ServerOptions options;
    options.record = options_;
    Serving serving(std::make_unique<FakeModel>(), {}, options);
    ask(&serving);
    serving.server()->Drain(std::chrono::seconds(10));
    counts_ = serving.server()->recording();
    return Read(options_.path);
  }

  testing::ScratchFolder folder_;
  RecorderOptions options_{.path = (folder_.path() / "calls").string()};
  RecorderCounts counts_;
};

TEST_F(RecordingServerTest, RecordsRequestsAsTheyCameAndAnswersAsTheyWent) {
  v1::PredictResponse response;
  v1::PredictRequest bad = NamedMessage();
  bad.set_num_examples(0);
  const system_clock::time_point before = system_clock::now();
  const Recording recording = RecordedBy([&](Serving* serving) {
    ASSERT_TRUE(serving->Predict(NamedMessage(), &response).ok());
    v1::PredictResponse none;
    EXPECT_FALSE(serving->Predict(bad, &none).ok());
  });
  EXPECT_EQ(recording.header.model(), "fake");
  EXPECT_EQ(recording.header.version(), 3);
  EXPECT_EQ(recording.header.schema(), FakeManifest().schema.fingerprint);
  ASSERT_EQ(recording.calls.size(), 2U);
  EXPECT_EQ(recording.calls[0].request(), NamedMessage().SerializeAsString());
  EXPECT_EQ(recording.calls[0].response(), response.SerializeAsString());
  EXPECT_EQ(recording.calls[1].request(), bad.SerializeAsString());
  EXPECT_EQ(recording.calls[1].code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(recording.calls[1].message(),
            "num_examples: expected 1..8, got 0; without examples, name only outputs in request "
            "scope: 'profile'");
  for (const v1::RecordedCall& call : recording.calls) {
    EXPECT_GE(At(call.arrival_unix_us() + 1), before);  // It is cut to whole microseconds.
    EXPECT_LE(At(call.arrival_unix_us()), system_clock::now());
  }
  EXPECT_EQ(counts_.recorded, 2U);
}

TEST_F(RecordingServerTest, RecordsRequestsOfAStreamAsThoseOfCalls) {
  v1::PredictResponse response;
  v1::PredictRequest bad = NamedMessage();
  bad.set_num_examples(0);
  const Recording recording = RecordedBy([&](Serving* serving) {
    grpc::ClientContext context;
    context.set_deadline(system_clock::now() + std::chrono::seconds(30));
    const auto stream = serving->stub()->PredictStream(&context);
    ASSERT_TRUE(stream->Write(NamedMessage()));
    ASSERT_TRUE(stream->Read(&response));
    ASSERT_TRUE(stream->Write(bad));
    v1::PredictResponse failed;
    ASSERT_TRUE(stream->Read(&failed));
    EXPECT_EQ(failed.failure().message(),
              "num_examples: expected 1..8, got 0; without examples, name only outputs in request "
              "scope: 'profile'");
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  });
  ASSERT_EQ(recording.calls.size(), 2U);
  EXPECT_EQ(recording.calls[0].request(), NamedMessage().SerializeAsString());
  EXPECT_EQ(recording.calls[0].response(), response.SerializeAsString());
  EXPECT_EQ(recording.calls[1].request(), bad.SerializeAsString());
  EXPECT_EQ(recording.calls[1].code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(recording.calls[1].message(),
            "num_examples: expected 1..8, got 0; without examples, name only outputs in request "
            "scope: 'profile'");
  EXPECT_EQ(recording.calls[1].response(), "");
}

TEST_F(RecordingServerTest, ServesOnWhenTheDiskIsFull) {
  std::atomic<int> told = 0;
  options_.report = [&told](const std::string&) { ++told; };
  RecordedBy([&told](Serving* serving) {
    const FullDisk full(100);
    for (int i = 0; i < 5; ++i) {
      v1::PredictResponse response;
      ExpectGood(serving->Predict(PackedMessage(), &response), response);
    }
    EXPECT_TRUE(WaitFor([&told] { return told > 0; }));  // A call is recorded after its answer.
  });
  EXPECT_EQ(told, 1);
}

TEST_F(RecordingServerTest, DoesNotStartWithoutItsFile) {
  std::ofstream(options_.path) << "mine";
  ServerOptions options;
  options.record = options_;
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(Server::Start(ServedModels::Of(std::move(*engine)), options).status().message(),
            "record: " + options_.path + " exists: give a new file");
}

}  // namespace
}  // namespace embershard::rpc
