#include "grpc/recorder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "embershard/v1/predictor.pb.h"
#include "grpc/recordings.h"
#include "grpc/serving_fixture.h"
#include "testing/scratch_folder.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

const RecordedModel kModel = {.name = "ranker", .version = 3, .schema = 0xabcdef};

v1::PredictRequest RequestOf(size_t bytes) {
  v1::PredictRequest request;
  request.set_num_examples(1);
  request.mutable_packed()->set_values(std::string(bytes, 'v'));
  return request;
}

v1::PredictResponse Answer() {
  v1::PredictResponse response;
  response.set_version(3);
  response.add_outputs()->set_name("score");
  return response;
}

class RecorderTest : public ::testing::Test {
 protected:
  std::unique_ptr<Recorder> Open() {
    auto opened = Recorder::Open(options_, kModel);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return opened.ok() ? std::move(*opened) : nullptr;
  }

  std::string Refusal() {
    const auto opened = Recorder::Open(options_, kModel);
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
    return opened.status().message();
  }

  testing::ScratchFolder folder_;
  RecorderOptions options_{.path = (folder_.path() / "calls").string()};
};

TEST_F(RecorderTest, WritesWhatWasAskedAndAnsweredInOrder) {
  const auto recorder = Open();
  const v1::PredictRequest good = PackedMessage();
  recorder->Offer(good, Status(), Answer(), At(1'700'000'000'000'001));
  recorder->Offer(RequestOf(9), InvalidArgument("no \xff text"), Answer(), At(5));
  recorder->Close();

  const Recording recording = Read(options_.path);
  EXPECT_EQ(recording.header.magic(), "embershard recording");
  EXPECT_EQ(recording.header.format(), 2U);
  EXPECT_EQ(recording.header.model(), "ranker");
  EXPECT_EQ(recording.header.version(), 3);
  EXPECT_EQ(recording.header.schema(), 0xabcdefU);
  EXPECT_EQ(recording.header.share(), 1.0);
  ASSERT_EQ(recording.calls.size(), 2U);
  EXPECT_EQ(recording.calls[0].arrival_unix_us(), 1'700'000'000'000'001);
  EXPECT_EQ(recording.calls[0].request(), good.SerializeAsString());
  EXPECT_EQ(recording.calls[0].code(), 0);
  EXPECT_EQ(recording.calls[0].response(), Answer().SerializeAsString());
  EXPECT_EQ(recording.calls[1].request(), RequestOf(9).SerializeAsString());
  EXPECT_EQ(recording.calls[1].code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(recording.calls[1].message(), "no \xff text");
  EXPECT_EQ(recording.calls[1].response(), "");
}

TEST_F(RecorderTest, CountsWhatIsInTheFile) {
  const auto recorder = Open();
  recorder->Offer(RequestOf(1), Status(), Answer(), At(1));
  recorder->Offer(RequestOf(2), Status(), Answer(), At(2));
  ASSERT_TRUE(WaitFor([&] { return recorder->counts().recorded == 2; }));
  const RecorderCounts counts = recorder->counts();
  EXPECT_EQ(counts.dropped, 0U);
  EXPECT_EQ(counts.bytes, std::filesystem::file_size(options_.path));
  EXPECT_EQ(counts.problem, "");
}

TEST_F(RecorderTest, LetsOnlyItsOwnerRead) {
  const auto recorder = Open();
  struct stat status;
  ASSERT_EQ(stat(options_.path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(RecorderTest, RefusesAFileThatExistsAndLeavesItAsItIs) {
  std::ofstream(options_.path) << "mine";
  EXPECT_EQ(Refusal(), "record: " + options_.path + " exists: give a new file");
  EXPECT_EQ(Contents(options_.path), "mine");
}

TEST_F(RecorderTest, RefusesAFolderThatIsNotThere) {
  options_.path = (folder_.path() / "no" / "calls").string();
  EXPECT_EQ(Refusal(), "record: " + options_.path + " cannot be made: No such file or directory");
}

TEST_F(RecorderTest, RefusesOptionsThatMakeNoSense) {
  options_.max_requests = 0;
  EXPECT_EQ(Refusal(), "record_requests: expected at least 1, got 0");
  options_.max_requests = 1;
  for (const double share : {0.0, -1.0, 1.5, std::nan("")}) {
    options_.share = share;
    EXPECT_NE(Refusal().find("record_share: expected a number above 0 and at most 1"),
              std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(options_.path));
}

TEST_F(RecorderTest, EndsAtItsNumberOfRequests) {
  options_.max_requests = 3;
  const auto recorder = Open();
  for (int i = 0; i < 10; ++i) recorder->Offer(RequestOf(1), Status(), Answer(), At(i));
  recorder->Close();
  EXPECT_EQ(Read(options_.path).calls.size(), 3U);
  EXPECT_EQ(recorder->counts().dropped, 0U);
}

TEST_F(RecorderTest, EndsBeforeItsNumberOfBytes) {
  options_.max_bytes = 4000;
  const auto recorder = Open();
  for (int i = 0; i < 10; ++i) recorder->Offer(RequestOf(1000), Status(), Answer(), At(i));
  recorder->Close();
  EXPECT_EQ(Read(options_.path).calls.size(), 3U);
  EXPECT_LE(std::filesystem::file_size(options_.path), 4000U);
}

TEST_F(RecorderTest, TakesTheShareThatWasAskedOfAllCalls) {
  options_.share = 0.25;
  const auto recorder = Open();
  for (int i = 0; i < 4000; ++i) recorder->Offer(RequestOf(1), Status(), Answer(), At(i));
  recorder->Close();
  const Recording recording = Read(options_.path);
  EXPECT_NEAR(static_cast<double>(recording.calls.size()), 1000, 110);  // Four deviations.
  EXPECT_EQ(recording.header.share(), 0.25);
  // The calls come from all parts of the run.
  ASSERT_FALSE(recording.calls.empty());
  EXPECT_LT(recording.calls.front().arrival_unix_us(), 100);
  EXPECT_GT(recording.calls.back().arrival_unix_us(), 3900);
}

TEST_F(RecorderTest, LeavesOutWhatFindsNoMemory) {
  options_.max_waiting_bytes = 1000;
  const auto recorder = Open();
  recorder->Offer(RequestOf(2000), Status(), Answer(), At(1));
  recorder->Offer(RequestOf(1), Status(), Answer(), At(2));
  recorder->Close();
  const Recording recording = Read(options_.path);
  ASSERT_EQ(recording.calls.size(), 1U);
  EXPECT_EQ(recording.calls[0].arrival_unix_us(), 2);
  EXPECT_EQ(recorder->counts().dropped, 1U);
}

TEST_F(RecorderTest, TakesNothingOnceClosed) {
  const auto recorder = Open();
  recorder->Close();
  recorder->Offer(RequestOf(1), Status(), Answer(), At(1));
  recorder->Close();
  EXPECT_TRUE(Read(options_.path).calls.empty());
}

TEST_F(RecorderTest, WritesEachCallOnceFromManyThreads) {
  {
    const auto recorder = Open();
    std::vector<std::thread> threads;
    for (int64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&recorder, thread] {
        for (int64_t i = 0; i < 500; ++i) {
          recorder->Offer(RequestOf(1), Status(), Answer(), At(thread * 500 + i));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<bool> seen(2000);
  for (const v1::RecordedCall& call : Read(options_.path).calls) {
    ASSERT_LT(call.arrival_unix_us(), 2000);
    EXPECT_FALSE(seen[call.arrival_unix_us()]);
    seen[call.arrival_unix_us()] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 2000);
}

TEST_F(RecorderTest, SaysOnceThatTheDiskIsFullAndKeepsWholeRecords) {
  const auto recorder = Open();
  ::testing::internal::CaptureStderr();
  {
    const FullDisk full(2500);
    for (int i = 0; i < 5; ++i) recorder->Offer(RequestOf(1000), Status(), Answer(), At(i));
    ASSERT_TRUE(WaitFor([&] { return !recorder->counts().problem.empty(); }));
    recorder->Offer(RequestOf(1), Status(), Answer(), At(6));
    recorder->Close();
    recorder->Offer(RequestOf(1), Status(), Answer(), At(7));  // Came after the end.
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "embershard: recording to " + options_.path +
                " has ended: File too large; requests are served as before\n");
  EXPECT_EQ(Read(options_.path).calls.size(), 2U);
  EXPECT_EQ(recorder->counts().recorded, 2U);
  EXPECT_EQ(recorder->counts().dropped, 4U);
}

TEST_F(RecorderTest, CountsNoMoreCallsAsLostThanTheFileWouldHold) {
  options_.max_requests = 5;
  options_.report = [](const std::string&) {};
  const auto recorder = Open();
  const FullDisk full(100);
  recorder->Offer(RequestOf(1000), Status(), Answer(), At(0));
  ASSERT_TRUE(WaitFor([&] { return !recorder->counts().problem.empty(); }));
  for (int i = 1; i < 10; ++i) recorder->Offer(RequestOf(1), Status(), Answer(), At(i));
  recorder->Close();
  EXPECT_EQ(recorder->counts().dropped, 5U);
}

// Deleted, and replaced as log rotation does it.
TEST_F(RecorderTest, SaysOnceThatItsPathNamesAnotherFileAndGoesOn) {
  for (const bool replaced : {false, true}) {
    std::vector<std::string> told;
    std::atomic<size_t> reports = 0;
    options_.look_every = std::chrono::milliseconds(1);
    options_.report = [&](const std::string& words) {
      told.push_back(words);
      ++reports;
    };
    const auto recorder = Open();
    std::filesystem::rename(options_.path, options_.path + ".1");
    if (replaced) std::ofstream(options_.path) << "another";
    ASSERT_TRUE(WaitFor([&] { return reports == 1; }));
    recorder->Offer(RequestOf(1), Status(), Answer(), At(1));
    ASSERT_TRUE(WaitFor([&] { return recorder->counts().recorded == 1; }));
    recorder->Close();
    EXPECT_EQ(told, std::vector<std::string>{"recording to " + options_.path +
                                             ": expected the file that is recorded into, found " +
                                             (replaced ? "another one" : "none") +
                                             "; it was deleted or renamed, and recording goes on"});
    EXPECT_EQ(Read(options_.path + ".1").calls.size(), 1U);
    std::filesystem::remove(options_.path);
  }
}

TEST_F(RecorderTest, ReportsAProblemToWhomItWasTold) {
  std::vector<std::string> told;
  options_.report = [&told](const std::string& words) { told.push_back(words); };
  const auto recorder = Open();
  {
    const FullDisk full(100);
    recorder->Offer(RequestOf(1000), Status(), Answer(), At(1));
    recorder->Close();
  }
  EXPECT_EQ(told, std::vector<std::string>{"recording to " + options_.path +
                                           " has ended: File too large; requests are served as "
                                           "before"});
}

}  // namespace
}  // namespace embershard::rpc
