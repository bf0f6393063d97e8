// One sending and one receiving thread of a run, with their own connections.

#pragma once

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/grpc_transport.h"
#include "bench/load_options.h"
#include "bench/tally.h"

namespace embershard::bench {

inline std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const LoadOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.tls->ca;
  ssl.pem_cert_chain = options.tls->certificate;
  ssl.pem_private_key = options.tls->key;
  return grpc::SslCredentials(ssl);
}

// A channel that shares no connection with other channels and does not retry.
inline std::shared_ptr<grpc::Channel> MakeChannel(const LoadOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // Only single attempts are measured.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  if (options.tls.has_value() && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  return grpc::CreateCustomChannel(options.target, CredentialsOf(options), arguments);
}

// Every scheduled request gets one outcome in the tally, at the latest when its deadline passes.
// Only Stop() leaves requests without an outcome. Thread-safe.
class GrpcLane {
 public:
  // `options` are those of the whole run; the lane takes its share of them. `options` and `pool`
  // must outlive the lane. REQUIRES: `pool` is not empty.
  GrpcLane(const LoadOptions& options, size_t index, const RequestPool* pool)
      : options_(options),
        pool_(pool),
        max_requests_(ShareOf(options.max_requests, index, options.lanes)),
        index_(index),
        answers_(options.keep_answers ? pool->size() : 0),
        next_request_(index) {
    for (size_t i = 0; i < options.connections_per_lane; ++i) {
      channels_.push_back(MakeChannel(options));
    }
    calls_.resize(ShareOf(options.in_flight, index, options.lanes));
    for (size_t slot = 0; slot < calls_.size(); ++slot) {
      calls_[slot].slot = slot;
      free_.push_back(&calls_[slot]);
    }
    if (options.streams > 0) {
      const size_t streams = ShareOf(options.streams, index, options.lanes);
      transport_ = MakeStreamTransport(options, channels_, streams, calls_.size());
    } else {
      transport_ = MakeCallTransport(options, channels_, calls_.size());
    }
  }

  GrpcLane(const GrpcLane&) = delete;
  GrpcLane& operator=(const GrpcLane&) = delete;

  ~GrpcLane() {
    Stop();
    if (!sender_.joinable()) return;  // Start() was not called.
    sender_.join();
    receiver_.join();
  }

  // Returns true if all of the lane's connections are connected.
  bool Connect(Clock::time_point deadline) {
    const auto system_deadline = SystemTime(deadline);
    for (const auto& channel : channels_) channel->GetState(/*try_to_connect=*/true);
    return std::all_of(channels_.begin(), channels_.end(), [&](const auto& channel) {
      return channel->WaitForConnected(system_deadline);
    });
  }

  // `finished` is called on a thread of the lane after the last outcome. REQUIRES: called at most
  // once.
  void Start(Clock::time_point start, std::function<void()> finished) {
    start_ = start;
    end_ = start + options_.warmup + options_.measure;
    tally_.counted_from = start + options_.warmup;
    sending_ = true;
    sender_ = std::thread([this] { SendLoop(); });
    receiver_ = std::thread([this, finished = std::move(finished)] { ReceiveLoop(finished); });
  }

  void Stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    transport_->Cancel();
    changed_.notify_all();
  }

  Tally tally() const {
    std::lock_guard lock(mutex_);
    return tally_;
  }

  // Moves out the first OK answer to each request of the pool, if there was one. Needs
  // options.keep_answers. REQUIRES: `finished` has been called.
  std::vector<std::optional<grpc::ByteBuffer>> TakeAnswers() {
    std::lock_guard lock(mutex_);
    return std::exchange(answers_, {});
  }

  // CPU time of the busier thread as a share of the run's time, 0..1. 0 until the lane finished.
  double busiest_thread_share() const {
    std::lock_guard lock(mutex_);
    return busiest_thread_share_;
  }

 private:
  struct Call {
    size_t slot = 0;  // Slot of the transport, and position in calls_.
    Clock::time_point scheduled;
    Clock::time_point ready;  // See Outcome::ready.
    Clock::time_point sent;
    size_t request = 0;  // Position in the pool.
  };

  void SendLoop() {
    prctl(PR_SET_TIMERSLACK, 1000);  // In nanoseconds. The default, 50,000, delays requests.
    if (options_.open_loop()) {
      SendOpenLoop();
    } else {
      SendClosedLoop();
    }
    std::lock_guard lock(mutex_);
    sender_cpu_seconds_ = ThreadCpuSeconds();
    sending_ = false;
    CloseIfIdleLocked();
  }

  void SendOpenLoop() {
    for (uint64_t number = index_;; number += options_.lanes) {
      const Clock::time_point due = start_ + options_.DueAt(number);
      if (!WaitUntil(std::min(due, end_))) return;
      {
        std::lock_guard lock(mutex_);
        if (!AdmitLocked(due)) return;
      }
      if (Call* const call = WaitForCall(due)) {
        Send(call);
      } else if (stopped_) {
        return;
      } else {
        Expire(due);
      }
    }
  }

  void SendClosedLoop() {
    WaitUntil(start_);
    for (size_t i = 0; i < calls_.size(); ++i) {
      Call* call;
      {
        std::lock_guard lock(mutex_);
        const Clock::time_point now = Clock::now();
        if (stopped_ || free_.empty() || !AdmitLocked(now)) return;
        call = free_.back();
        free_.pop_back();
        BeginLocked(call, now);
      }
      Send(call);
    }
  }

  void ReceiveLoop(const std::function<void()>& finished) {
    const Clock::time_point since = Clock::now();
    while (const std::optional<Reply> reply = transport_->Next()) {
      if (Receive(*reply, Clock::now())) Send(&calls_[reply->slot]);
    }
    const std::chrono::duration<double> lived = Clock::now() - since;
    {
      // The transport is closed only after the sender ended, so sender_cpu_seconds_ is set.
      std::lock_guard lock(mutex_);
      const double busiest = std::max(sender_cpu_seconds_, ThreadCpuSeconds());
      busiest_thread_share_ = std::min(1.0, busiest / std::max(lived.count(), 1e-9));
    }
    finished();
  }

  // Returns false if the lane was stopped.
  bool WaitUntil(Clock::time_point due) {
    if (Clock::now() >= due) return !stopped_;
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, due, [this] { return stopped_.load(); });
  }

  // Returns null if the lane was stopped or the deadline of the request due at `scheduled` passed.
  Call* WaitForCall(Clock::time_point scheduled) {
    std::unique_lock lock(mutex_);
    if (free_.empty() && !stopped_) {
      changed_.wait_until(lock, scheduled + options_.timeout,
                          [this] { return stopped_ || !free_.empty(); });
      waited_until_ = Clock::now();
    }
    if (stopped_ || free_.empty() || Clock::now() >= scheduled + options_.timeout) return nullptr;
    Call* const call = free_.back();
    free_.pop_back();
    BeginLocked(call, scheduled);
    call->ready = std::max(scheduled, waited_until_);
    return call;
  }

  bool AdmitLocked(Clock::time_point scheduled) {
    if (scheduled >= end_) return false;
    if (!tally_.Counts(scheduled)) return true;
    if (max_requests_ > 0 && admitted_ == max_requests_) return false;
    ++admitted_;
    return true;
  }

  void BeginLocked(Call* call, Clock::time_point scheduled) {
    call->request = next_request_ % pool_->size();
    next_request_ += options_.lanes;
    call->scheduled = call->ready = scheduled;
  }

  void Send(Call* call) {
    call->sent = Clock::now();
    transport_->Send(call->slot, (*pool_)[call->request].message,
                     call->scheduled + options_.timeout);
  }

  // Returns true if the call got another request that must now be sent, as in a closed loop.
  bool Receive(const Reply& reply, Clock::time_point now) {
    Call* const call = &calls_[reply.slot];
    const bool sent_late = reply.code == grpc::StatusCode::DEADLINE_EXCEEDED &&
                           call->sent - call->scheduled > options_.timeout / 2;
    const Outcome outcome = {.scheduled = call->scheduled,
                             .ready = call->ready,
                             .sent = call->sent,
                             .answered = now,
                             .code = reply.code,
                             .examples = (*pool_)[call->request].examples,
                             .answer_bytes = reply.answer.Length(),
                             .expired = sent_late ? Expired::kSentLate : Expired::kNo};
    std::lock_guard lock(mutex_);
    if (options_.keep_answers && outcome.code == 0 && !answers_[call->request].has_value()) {
      answers_[call->request] = reply.answer;  // Shares the bytes.
    }
    if (!stopped_) tally_.Add(outcome, reply.message);
    const bool again = !options_.open_loop() && !stopped_ && AdmitLocked(now);
    if (again) {
      BeginLocked(call, now);
    } else {
      free_.push_back(call);
      if (free_.size() == 1) changed_.notify_all();
      CloseIfIdleLocked();
    }
    return again;
  }

  void Expire(Clock::time_point scheduled) {
    const Clock::time_point now = Clock::now();
    std::lock_guard lock(mutex_);
    next_request_ += options_.lanes;  // Skips the request that expired.
    // Its deadline passed while it waited for a call, or before the sender reached it.
    const bool waited = waited_until_ >= scheduled + options_.timeout;
    const Outcome outcome = {.scheduled = scheduled,
                             .ready = std::max(scheduled, waited_until_),
                             .sent = now,
                             .answered = now,
                             .code = grpc::StatusCode::DEADLINE_EXCEEDED,
                             .examples = 0,
                             .answer_bytes = 0,
                             .expired = waited ? Expired::kWithoutCall : Expired::kBeforeSend};
    tally_.Add(outcome, waited ? "never sent: all calls in flight waited for answers"
                               : "never sent: the tool was late");
  }

  void CloseIfIdleLocked() {
    if (!sending_ && free_.size() == calls_.size()) transport_->Close();
  }

  const LoadOptions& options_;
  const RequestPool* const pool_;
  const uint64_t max_requests_;  // The lane's share; 0 is no limit.
  const size_t index_;
  Channels channels_;
  std::vector<Call> calls_;  // Never resized after the constructor.
  std::unique_ptr<GrpcTransport> transport_;
  Clock::time_point start_;
  Clock::time_point end_;
  std::atomic<bool> stopped_ = false;  // Written under mutex_.

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // Signals a free call, or stopped_.
  std::vector<Call*> free_;          // This and all fields below are guarded by mutex_.
  std::vector<std::optional<grpc::ByteBuffer>> answers_;
  Tally tally_;
  uint64_t admitted_ = 0;           // Number of admitted requests, without those of the warmup.
  Clock::time_point waited_until_;  // End of the last wait for a free call, if there was one.
  uint64_t next_request_;           // Number of the lane's next request. Lanes take them in turn.
  bool sending_ = false;
  double sender_cpu_seconds_ = 0;
  double busiest_thread_share_ = 0;

  std::thread sender_;
  std::thread receiver_;
};

}  // namespace embershard::bench
