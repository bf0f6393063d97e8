// Writes a sample of the calls to a file, for replay. Free of protobuf on this side.
// The file: proto/embershard/v1/recording.proto.

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
  std::string path = {};  // The file to make. Empty: nothing is recorded.

  // The file ends with whichever is reached first. Bytes are those of the file.
  uint64_t max_requests = 10'000;
  uint64_t max_bytes = uint64_t{1} << 30;

  double share = 1.0;  // Of the calls that are recorded, above 0, at most 1.

  // Memory of calls that are not written yet. Beyond it calls are left out.
  size_t max_waiting_bytes = 64 << 20;

  // How often it is looked whether the path still names the file: somebody may have deleted or
  // rotated it. Tests look more often.
  std::chrono::milliseconds look_every{5000};

  // Told, once each and on the thread that writes, when the file ends before its time, and when the
  // path names it no more: the whole sentence. Must not wait for that thread. Empty: it goes to
  // standard error.
  std::function<void(const std::string& words)> report = {};
};

// What the calls are answered by.
struct RecordedModel {
  std::string name;
  int64_t version = 0;
  uint64_t schema = 0;  // The fingerprint.
};

struct RecorderCounts {
  uint64_t recorded = 0;
  // Sampled, and left out for want of memory or, up to max_requests, because of the problem.
  uint64_t dropped = 0;
  uint64_t bytes = 0;   // Of the file.
  std::string problem;  // Why the file ended before its time. Empty: it did not.
};

// A thread of its own writes. Once the system has a record, killing this process does not
// take it back. What goes wrong while writing, such as a full disk, is reported once and ends
// the file after its last whole record; calls go on. Any thread may call.
class Recorder {
 public:
  // kInvalidArgument: the options make no sense, or the file exists or cannot be made. Only
  // its owner may read it: it holds what users sent.
  static Result<std::unique_ptr<Recorder>> Open(const RecorderOptions& options,
                                                const RecordedModel& model);

  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();  // Calls Close().

  // Hands over a call that has ended, if it is in the sample. Never waits for the disk.
  void Offer(const v1::PredictRequest& request, const Status& status,
             const v1::PredictResponse& response,
             std::chrono::system_clock::time_point arrival) noexcept;

  // Writes the rest. Later offers have no effect. Safe to call more than once.
  void Close();

  RecorderCounts counts() const;

 private:
  struct Waiting;  // A call that is not written yet.

  Recorder(const RecorderOptions& options, File file, uint64_t header_bytes);

  // kFailed: the file ended before its time; calls are only counted. kEnded: not even that.
  enum class State { kRecording, kFailed, kEnded };

  bool Sampled();
  bool Reserve(size_t bytes);
  void WriteLoop();
  void Write(const Waiting& call);
  void End(const std::string& problem);
  // Reports once if the path names the file no more.
  void CheckPath();
  void Report(const std::string& words) const;

  const RecorderOptions options_;
  const File file_;

  std::atomic<State> state_ = State::kRecording;
  std::atomic<uint64_t> offered_ = 0;
  std::atomic<uint64_t> reserved_ = 0;  // Requests of the file that are spoken for.
  std::atomic<size_t> waiting_bytes_ = 0;
  std::atomic<uint64_t> recorded_ = 0;
  std::atomic<uint64_t> dropped_ = 0;
  std::atomic<uint64_t> file_bytes_;

  mutable Mutex mutex_;
  CondVar changed_;  // Signalled when the fields below change.
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);
  std::string problem_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;

  bool is_path_lost_ = false;  // Of the thread that writes.

  std::once_flag joined_;
  std::thread writer_;  // Last, so that WriteLoop() sees every field built.
};

}  // namespace embershard::rpc
