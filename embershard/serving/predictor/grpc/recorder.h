// Writes a sample of calls to a file, for replay. The format is
// proto/embershard/v1/recording.proto; this header does not include protobuf.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/mutex.h"
#include "base/status.h"

namespace embershard::v1 {
class PredictRequest;
class PredictResponse;
}  // namespace embershard::v1

namespace embershard::rpc {

struct RecorderOptions {
  std::string path = {};  // The file to create. Empty: calls are not recorded.
  // The file ends when either limit is reached. Bytes are those of the file.
  uint64_t max_requests = 10'000;
  uint64_t max_bytes = uint64_t{1} << 30;

  double share = 1.0;  // Share of calls to record, above 0, at most 1.
  // Most memory of calls that are not written yet. Calls beyond it are dropped.
  size_t max_waiting_bytes = 64 << 20;

  // Interval of checks that the path still names the file, which may be deleted or rotated. Tests
  // use a shorter one.
  std::chrono::milliseconds look_every{5000};

  // Receives a sentence, on the writing thread, if the file ends early and if the path no longer
  // names it; once each. Must not wait for that thread. Empty: written to standard error.
  std::function<void(const std::string& words)> report = {};
};

struct RecordedModel {
  std::string name;
  int64_t version = 0;
  uint64_t schema = 0;  // Fingerprint of its schema.
};

struct RecorderCounts {
  uint64_t recorded = 0;
  // Sampled calls that were not written, for lack of memory or because of `problem`.
  uint64_t dropped = 0;
  uint64_t bytes = 0;   // Size of the file.
  std::string problem;  // Reason if the file ended early, otherwise empty.
};

// Thread-safe. A thread of its own writes the file. Written records survive if the process is
// killed. An error while writing, such as a full disk, is reported once and ends the file after its
// last whole record; calls continue.
class Recorder {
 public:
  // kInvalidArgument if an option is out of range, or if the file exists or cannot be created. Only
  // its owner may read the file, because it holds users' data.
  static Result<std::unique_ptr<Recorder>> Open(const RecorderOptions& options,
                                                const RecordedModel& model);

  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();  // Calls Close().

  // Adds a call that has ended, if it is in the sample. Never waits for the disk.
  void Offer(const v1::PredictRequest& request, const Status& status,
             const v1::PredictResponse& response,
             std::chrono::system_clock::time_point arrival) noexcept;

  void Close();

  RecorderCounts counts() const;

 private:
  struct Waiting;  // A call that was not written yet.

  Recorder(const RecorderOptions& options, File file, uint64_t header_bytes);

  // kFailed: the file ended early, calls are only counted. kEnded: calls are not even counted.
  enum class State { kRecording, kFailed, kEnded };

  bool Sampled();
  bool Reserve(size_t bytes);
  void WriteLoop();
  void Write(const Waiting& call);
  void End(const std::string& problem);
  void CheckPath();
  void Report(const std::string& words) const;

  const RecorderOptions options_;
  const File file_;

  std::atomic<State> state_ = State::kRecording;
  std::atomic<uint64_t> offered_ = 0;
  std::atomic<uint64_t> reserved_ = 0;  // Requests accepted for the file so far.
  std::atomic<size_t> waiting_bytes_ = 0;
  std::atomic<uint64_t> recorded_ = 0;
  std::atomic<uint64_t> dropped_ = 0;
  std::atomic<uint64_t> file_bytes_;

  mutable Mutex mutex_;
  CondVar changed_;  // Signalled when the fields below change.
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
  std::string problem_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;

  bool is_path_lost_ = false;  // Used by the writing thread only.

  std::once_flag joined_;
  std::thread writer_;  // Last, so that WriteLoop() starts after all fields exist.
};

}  // namespace embershard::rpc
