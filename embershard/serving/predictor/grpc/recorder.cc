#include "grpc/recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "base/clock.h"
#include "base/split_mix.h"
#include "embershard/v1/predictor.pb.h"
#include "embershard/v1/recording.pb.h"
#include "grpc/status_map.h"

namespace embershard::rpc {
namespace {

constexpr char kMagic[] = "embershard recording";
constexpr uint32_t kFormat = 2;

std::string Framed(const google::protobuf::MessageLite& message) {
  constexpr size_t kSizeBytes = 4, kFrameBytes = 16;
  std::string bytes(kFrameBytes, '\0');
  message.AppendToString(&bytes);
  const auto size = static_cast<uint32_t>(bytes.size() - kFrameBytes);
  const auto put = [&bytes](size_t at, auto number) {
    std::memcpy(bytes.data() + at, &number, sizeof(number));  // Little endian.
  };
  put(0, size);
  put(kSizeBytes, static_cast<uint32_t>(XXH3_64bits(bytes.data(), kSizeBytes)));
  put(8, XXH3_64bits(bytes.data() + kFrameBytes, size));
  return bytes;
}

// Returns false on an error, with errno set.
bool WriteAll(int descriptor, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = write(descriptor, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

Status CannotBeMade(const std::string& path, int error) {
  if (error == EEXIST) return InvalidArgument("record: ", path, " exists: give a new file");
  return InvalidArgument("record: ", path, " cannot be made: ", std::strerror(error));
}

}  // namespace

struct Recorder::Waiting {
  v1::RecordedCall record;
  size_t bytes = 0;  // Its part of max_waiting_bytes.
};

Result<std::unique_ptr<Recorder>> Recorder::Open(const RecorderOptions& options,
                                                 const RecordedModel& model) {
  if (options.max_requests == 0) {
    return InvalidArgument("record_requests: expected at least 1, got 0");
  }
  if (!(options.share > 0 && options.share <= 1)) {
    return InvalidArgument("record_share: expected a number above 0 and at most 1, got ",
                           options.share);
  }
  v1::RecordingHeader header;
  header.set_magic(kMagic);
  header.set_format(kFormat);
  header.set_model(model.name);
  header.set_version(model.version);
  header.set_schema(model.schema);
  header.set_share(options.share);
  const std::string first = Framed(header);

  File file(open(options.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.is_open()) return CannotBeMade(options.path, errno);
  if (!WriteAll(file.descriptor(), first)) {
    const int error = errno;
    unlink(options.path.c_str());
    return CannotBeMade(options.path, error);
  }
  return std::unique_ptr<Recorder>(new Recorder(options, std::move(file), first.size()));
}

Recorder::Recorder(const RecorderOptions& options, File file, uint64_t header_bytes)
    : options_(options),
      file_(std::move(file)),
      file_bytes_(header_bytes),
      writer_([this] { WriteLoop(); }) {}

Recorder::~Recorder() { Close(); }

void Recorder::Close() {
  state_ = State::kEnded;
  {
    MutexLock lock(mutex_);
    closing_ = true;
  }
  changed_.NotifyAll();
  std::call_once(joined_, [this] { writer_.join(); });
}

RecorderCounts Recorder::counts() const {
  MutexLock lock(mutex_);
  return {.recorded = recorded_, .dropped = dropped_, .bytes = file_bytes_, .problem = problem_};
}

void Recorder::Offer(const v1::PredictRequest& request, const Status& status,
                     const v1::PredictResponse& response,
                     std::chrono::system_clock::time_point arrival) noexcept {
  if (state_ == State::kEnded || !Sampled()) return;
  const size_t bytes = sizeof(Waiting) + request.ByteSizeLong() + response.ByteSizeLong();
  if (!Reserve(bytes)) return;
  try {
    Waiting call;
    call.bytes = bytes;
    call.record.set_arrival_unix_us(
        std::chrono::duration_cast<std::chrono::microseconds>(arrival.time_since_epoch()).count());
    request.SerializeToString(call.record.mutable_request());
    if (status.ok()) {
      response.SerializeToString(call.record.mutable_response());
    } else {
      const grpc::Status answered = ToGrpcStatus(status);
      call.record.set_code(answered.error_code());
      call.record.set_message(answered.error_message());
    }
    MutexLock lock(mutex_);
    waiting_.push_back(std::move(call));
  } catch (const std::exception&) {  // No memory.
    waiting_bytes_ -= bytes;
    ++dropped_;
    return;
  }
  changed_.NotifyAll();
}

bool Recorder::Sampled() {
  const uint64_t place = ++offered_;
  return options_.share >= 1 || UnitInterval(SplitMix64(0, place)) < options_.share;
}

bool Recorder::Reserve(size_t bytes) {
  if (state_ == State::kFailed) {
    if (++reserved_ <= options_.max_requests) ++dropped_;
    return false;
  }
  if (waiting_bytes_.fetch_add(bytes) + bytes > options_.max_waiting_bytes) {
    waiting_bytes_ -= bytes;
    ++dropped_;
    return false;
  }
  if (++reserved_ > options_.max_requests) {
    state_ = State::kEnded;
    waiting_bytes_ -= bytes;
    return false;
  }
  return true;
}

void Recorder::WriteLoop() {
  Clock::time_point look = Clock::now() + options_.look_every;
  for (;;) {
    std::vector<Waiting> taken;
    {
      MutexLock lock(mutex_);
      while (!closing_ && waiting_.empty() && changed_.WaitUntil(mutex_, look)) {
      }
      if (waiting_.empty() && closing_) return;
      taken.swap(waiting_);
    }
    if (Clock::now() >= look) {
      CheckPath();
      look = Clock::now() + options_.look_every;
    }
    for (Waiting& waiting : taken) {
      const Waiting call = std::move(waiting);  // Freed before its bytes are subtracted.
      Write(call);
      waiting_bytes_ -= call.bytes;
    }
  }
}

void Recorder::Write(const Waiting& call) {
  std::string bytes;
  try {
    bytes = Framed(call.record);
  } catch (const std::exception&) {  // No memory.
    ++dropped_;
    return;
  }
  if (!counts().problem.empty()) {
    ++dropped_;
    return;
  }
  const uint64_t before = file_bytes_;
  if (before + bytes.size() > options_.max_bytes) {
    state_ = State::kEnded;
    return;
  }
  if (!WriteAll(file_.descriptor(), bytes)) {
    std::string problem = std::strerror(errno);
    ++dropped_;
    // A part of the record may have been written.
    if (ftruncate(file_.descriptor(), static_cast<off_t>(before)) != 0) {
      problem += ", and its last record is cut short";
    }
    return End(problem);
  }
  file_bytes_ = before + bytes.size();
  ++recorded_;
}

void Recorder::End(const std::string& problem) {
  State recording = State::kRecording;
  state_.compare_exchange_strong(recording, State::kFailed);
  {
    MutexLock lock(mutex_);
    problem_ = problem;
  }
  Report("recording to " + options_.path + " has ended: " + problem +
         "; requests are served as before");
}

void Recorder::CheckPath() {
  if (is_path_lost_ || state_ != State::kRecording) return;
  struct stat opened;
  struct stat named;
  if (fstat(file_.descriptor(), &opened) != 0) return;
  const bool is_there = stat(options_.path.c_str(), &named) == 0;
  if (!is_there && errno != ENOENT) return;
  if (is_there && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev) return;
  is_path_lost_ = true;
  Report("recording to " + options_.path + ": expected the file that is recorded into, found " +
         (is_there ? "another one" : "none") +
         "; it was deleted or renamed, and recording goes on");
}

void Recorder::Report(const std::string& words) const {
  if (options_.report) return options_.report(words);
  std::fputs(("embershard: " + words + "\n").c_str(), stderr);
}

}  // namespace embershard::rpc
