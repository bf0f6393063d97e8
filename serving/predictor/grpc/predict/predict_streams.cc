#include "grpc/predict/predict_streams.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace embershard::rpc {
namespace {

// How often streams are looked at. A client may read nothing for this much longer.
std::chrono::milliseconds PeriodOf(std::chrono::milliseconds stalled) {
  using std::chrono::milliseconds;
  return std::clamp<milliseconds>(stalled / 4, milliseconds(1), milliseconds(1000));
}

}  // namespace

PredictStreamOptions StreamOptionsOf(const ServerOptions& options) {
  return {.in_flight = options.stream_in_flight,
          .default_timeout = options.default_timeout,
          .retry_pushback = options.retry_pushback,
          .stalled = options.stream_stalled};
}

PredictStreams::PredictStreams(const PredictHandler* handler, MakeMessages make_messages,
                               const PredictStreamOptions& options)
    : handler_(handler),
      make_messages_(make_messages),
      options_(options),
      watch_([this] { Watch(); }) {}

PredictStreams::~PredictStreams() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  watch_.join();
}

PredictStream* PredictStreams::Open(grpc::CallbackServerContext* context) {
  const auto stream =
      std::make_shared<PredictStream>(handler_, make_messages_, context, options_, &held_bytes_,
                                      [this](PredictStream* done) { Remove(done); });
  handler_->SetAuthenticated(*context);
  handler_->telemetry().CountStreamStart();
  bool closing;
  {
    MutexLock lock(mutex_);
    open_.emplace(stream.get(), stream);
    closing = closing_;
  }
  changed_.NotifyAll();
  if (closing) {
    stream->Close();
  } else {
    stream->Start();
  }
  return stream.get();
}

void PredictStreams::Close() {
  Streams streams;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    streams = Copied();
  }
  for (const auto& stream : streams) stream->Close();
}

void PredictStreams::WaitUntilEnded(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (!open_.empty() && changed_.WaitUntil(mutex_, deadline)) {
  }
}

void PredictStreams::Remove(PredictStream* stream) {
  handler_->telemetry().CountStreamEnd();
  std::shared_ptr<PredictStream> last;  // Ends behind the lock.
  MutexLock lock(mutex_);
  const auto found = open_.find(stream);
  last = std::move(found->second);
  open_.erase(found);
  changed_.NotifyAll();
}

PredictStreams::Streams PredictStreams::Copied() const {
  Streams streams;
  streams.reserve(open_.size());
  for (const auto& [key, stream] : open_) streams.push_back(stream);
  return streams;
}

void PredictStreams::Watch() {
  const std::chrono::milliseconds period = PeriodOf(options_.stalled);
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && open_.empty()) changed_.Wait(mutex_);
    const Clock::time_point next = Clock::now() + period;
    while (!stopping_ && changed_.WaitUntil(mutex_, next)) {
    }
    if (stopping_) return;
    Streams streams;
    try {
      streams = Copied();
    } catch (const std::exception&) {  // Memory has run out. There is a next time.
    }
    lock.Unlock();
    for (const auto& stream : streams) stream->CancelIfStalled(Clock::now());
    streams.clear();
    lock.Lock();
  }
}

}  // namespace embershard::rpc
