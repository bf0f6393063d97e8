// One sending and one receiving thread of a run, with connections of their own.

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
#include "bench/grpc_carrier.h"
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

// A connection that no other channel shares, and on which nothing is sent twice.
inline std::shared_ptr<grpc::Channel> MakeChannel(const LoadOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // What is measured is one attempt.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  if (options.tls.has_value() && !options.tls->server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls->server_name);
  }
  return grpc::CreateCustomChannel(options.target, CredentialsOf(options), arguments);
}

// Every request that is scheduled gets one outcome in the tally, at the latest when its
// deadline passes. Stop() alone leaves requests out. Any thread may call.
class GrpcLane {
 public:
  // `options` are those of the run, of which this lane takes its share. They and `pool`, which
  // must not be empty, must outlive the lane.
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
      carrier_ = MakeStreams(options, channels_, streams, calls_.size());
    } else {
      carrier_ = MakeCalls(options, channels_, calls_.size());
    }
  }

  GrpcLane(const GrpcLane&) = delete;
  GrpcLane& operator=(const GrpcLane&) = delete;

  // Stops and waits.
  ~GrpcLane() {
    Stop();
    if (!sender_.joinable()) return;  // Never started.
    sender_.join();
    receiver_.join();
  }

  // Waits until its connections stand, or `deadline`. Whether they all do.
  bool Connect(Clock::time_point deadline) {
    const auto system_deadline = SystemTime(deadline);
    for (const auto& channel : channels_) channel->GetState(/*try_to_connect=*/true);
    return std::all_of(channels_.begin(), channels_.end(), [&](const auto& channel) {
      return channel->WaitForConnected(system_deadline);
    });
  }

  // Begins to send. `finished` is called on a thread of the lane after the last outcome.
  // REQUIRES: called once.
  void Start(Clock::time_point start, std::function<void()> finished) {
    start_ = start;
    end_ = start + options_.warmup + options_.measure;
    tally_.counted_from = start + options_.warmup;
    sending_ = true;
    sender_ = std::thread([this] { SendLoop(); });
    receiver_ = std::thread([this, finished = std::move(finished)] { ReceiveLoop(finished); });
  }

  // Sends nothing more and cancels what is under way, without an outcome.
  void Stop() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    carrier_->Cancel();
    changed_.notify_all();
  }

  Tally tally() const {
    std::lock_guard lock(mutex_);
    return tally_;
  }

  // With keep_answers: for each request of the pool the first answer that was OK, if any.
  // REQUIRES: `finished` has been called. Leaves none here.
  std::vector<std::optional<grpc::ByteBuffer>> TakeAnswers() {
    std::lock_guard lock(mutex_);
    return std::exchange(answers_, {});
  }

  // The share of the run that the busier thread was on a core, 0..1. 0 until finished.
  double busiest_thread_share() const {
    std::lock_guard lock(mutex_);
    return busiest_thread_share_;
  }

 private:
  struct Call {
    size_t slot = 0;  // Of the carrier, and its place in calls_.
    Clock::time_point scheduled;
    Clock::time_point ready;  // As Outcome's.
    Clock::time_point sent;
    size_t request = 0;  // Its place in the pool.
  };

  void SendLoop() {
    prctl(PR_SET_TIMERSLACK, 1000);  // Nanoseconds; 50,000 by default, too late for a sender.
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
    while (const std::optional<Carried> carried = carrier_->Next()) {
      if (Receive(*carried, Clock::now())) Send(&calls_[carried->slot]);
    }
    const std::chrono::duration<double> lived = Clock::now() - since;
    {
      std::lock_guard lock(
          mutex_);  // The sender is done: it or an answer after it ended the queue.
      const double busiest = std::max(sender_cpu_seconds_, ThreadCpuSeconds());
      busiest_thread_share_ = std::min(1.0, busiest / std::max(lived.count(), 1e-9));
    }
    finished();
  }

  // False: stopped.
  bool WaitUntil(Clock::time_point due) {
    if (Clock::now() >= due) return !stopped_;
    std::unique_lock lock(mutex_);
    return !changed_.wait_until(lock, due, [this] { return stopped_.load(); });
  }

  // Null: stopped, or its deadline passed.
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

  // Whether the run still takes a request.
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
    carrier_->Send(call->slot, (*pool_)[call->request].message, call->scheduled + options_.timeout);
  }

  // True: it is to be sent again.
  bool Receive(const Carried& carried, Clock::time_point now) {
    Call* const call = &calls_[carried.slot];
    const bool sent_late = carried.code == grpc::StatusCode::DEADLINE_EXCEEDED &&
                           call->sent - call->scheduled > options_.timeout / 2;
    const Outcome outcome = {.scheduled = call->scheduled,
                             .ready = call->ready,
                             .sent = call->sent,
                             .answered = now,
                             .code = carried.code,
                             .examples = (*pool_)[call->request].examples,
                             .answer_bytes = carried.answer.Length(),
                             .expired = sent_late ? Expired::kSentLate : Expired::kNo};
    std::lock_guard lock(mutex_);
    if (options_.keep_answers && outcome.code == 0 && !answers_[call->request].has_value()) {
      answers_[call->request] = carried.answer;  // Shares its bytes.
    }
    if (!stopped_) tally_.Add(outcome, carried.message);
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
    next_request_ += options_.lanes;  // The one that was due.
    // Its deadline passed while it waited for a call, or before the sender came to it.
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
    if (!sending_ && free_.size() == calls_.size()) carrier_->Close();
  }

  const LoadOptions& options_;
  const RequestPool* const pool_;
  const uint64_t max_requests_;  // Of this lane. 0: no limit.
  const size_t index_;
  Channels channels_;
  std::vector<Call> calls_;  // Built at the start, then fixed in number.
  std::unique_ptr<GrpcCarrier> carrier_;
  Clock::time_point start_;
  Clock::time_point end_;
  std::atomic<bool> stopped_ = false;  // Written under mutex_.

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // A call became free, or stopped_.
  std::vector<Call*> free_;          // Guarded by mutex_, as all below.
  std::vector<std::optional<grpc::ByteBuffer>> answers_;
  Tally tally_;
  uint64_t admitted_ = 0;           // That count.
  Clock::time_point waited_until_;  // When the last wait for a free call ended, if there was one.
  uint64_t next_request_;  // In the row of all lanes' requests, of which each takes every n-th.
  bool sending_ = false;
  double sender_cpu_seconds_ = 0;
  double busiest_thread_share_ = 0;

  std::thread sender_;
  std::thread receiver_;
};

}  // namespace embershard::bench
