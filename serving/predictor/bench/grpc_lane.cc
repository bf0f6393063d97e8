#include "bench/grpc_lane.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <utility>

namespace embershard::bench {
namespace {

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const LoadOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.tls->ca;
  ssl.pem_cert_chain = options.tls->certificate;
  ssl.pem_private_key = options.tls->key;
  return grpc::SslCredentials(ssl);
}

// A connection that no other channel shares, and on which nothing is sent twice.
std::shared_ptr<grpc::Channel> MakeChannel(const LoadOptions& options) {
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

}  // namespace

GrpcLane::GrpcLane(const LoadOptions& options, size_t index, const RequestPool* pool)
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

GrpcLane::~GrpcLane() {
  Stop();
  if (!sender_.joinable()) return;  // Never started.
  sender_.join();
  receiver_.join();
}

bool GrpcLane::Connect(Clock::time_point deadline) {
  const auto system_deadline = SystemTime(deadline);
  for (const auto& channel : channels_) channel->GetState(/*try_to_connect=*/true);
  return std::all_of(channels_.begin(), channels_.end(), [&](const auto& channel) {
    return channel->WaitForConnected(system_deadline);
  });
}

void GrpcLane::Start(Clock::time_point start, std::function<void()> finished) {
  start_ = start;
  end_ = start + options_.warmup + options_.measure;
  tally_.counted_from = start + options_.warmup;
  sending_ = true;
  sender_ = std::thread([this] { SendLoop(); });
  receiver_ = std::thread([this, finished = std::move(finished)] { ReceiveLoop(finished); });
}

void GrpcLane::Stop() {
  std::lock_guard lock(mutex_);
  stopped_ = true;
  carrier_->Cancel();
  changed_.notify_all();
}

Tally GrpcLane::tally() const {
  std::lock_guard lock(mutex_);
  return tally_;
}

std::vector<std::optional<grpc::ByteBuffer>> GrpcLane::TakeAnswers() {
  std::lock_guard lock(mutex_);
  return std::exchange(answers_, {});
}

double GrpcLane::busiest_thread_share() const {
  std::lock_guard lock(mutex_);
  return busiest_thread_share_;
}

void GrpcLane::SendLoop() {
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

void GrpcLane::SendOpenLoop() {
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

void GrpcLane::SendClosedLoop() {
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

bool GrpcLane::WaitUntil(Clock::time_point due) {
  if (Clock::now() >= due) return !stopped_;
  std::unique_lock lock(mutex_);
  return !changed_.wait_until(lock, due, [this] { return stopped_.load(); });
}

GrpcLane::Call* GrpcLane::WaitForCall(Clock::time_point scheduled) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, scheduled + options_.timeout,
                      [this] { return stopped_ || !free_.empty(); });
  if (stopped_ || free_.empty() || Clock::now() >= scheduled + options_.timeout) return nullptr;
  Call* const call = free_.back();
  free_.pop_back();
  BeginLocked(call, scheduled);
  return call;
}

bool GrpcLane::AdmitLocked(Clock::time_point scheduled) {
  if (scheduled >= end_) return false;
  if (!tally_.Counts(scheduled)) return true;
  if (max_requests_ > 0 && admitted_ == max_requests_) return false;
  ++admitted_;
  return true;
}

void GrpcLane::BeginLocked(Call* call, Clock::time_point scheduled) {
  call->request = next_request_ % pool_->size();
  next_request_ += options_.lanes;
  call->scheduled = scheduled;
}

void GrpcLane::Send(Call* call) {
  call->sent = Clock::now();
  carrier_->Send(call->slot, (*pool_)[call->request].message, call->scheduled + options_.timeout);
}

void GrpcLane::ReceiveLoop(const std::function<void()>& finished) {
  const Clock::time_point since = Clock::now();
  while (const std::optional<Carried> carried = carrier_->Next()) {
    if (Receive(*carried, Clock::now())) Send(&calls_[carried->slot]);
  }
  const std::chrono::duration<double> lived = Clock::now() - since;
  {
    std::lock_guard lock(mutex_);  // The sender is done: it or an answer after it ended the queue.
    const double busiest = std::max(sender_cpu_seconds_, ThreadCpuSeconds());
    busiest_thread_share_ = std::min(1.0, busiest / std::max(lived.count(), 1e-9));
  }
  finished();
}

bool GrpcLane::Receive(const Carried& carried, Clock::time_point now) {
  Call* const call = &calls_[carried.slot];
  const Outcome outcome = {.scheduled = call->scheduled,
                           .sent = call->sent,
                           .answered = now,
                           .code = carried.code,
                           .examples = (*pool_)[call->request].examples,
                           .answer_bytes = carried.answer.Length()};
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

void GrpcLane::Expire(Clock::time_point scheduled) {
  const Clock::time_point now = Clock::now();
  std::lock_guard lock(mutex_);
  next_request_ += options_.lanes;  // The one that was due.
  const Outcome outcome = {.scheduled = scheduled,
                           .sent = now,
                           .answered = now,
                           .code = grpc::StatusCode::DEADLINE_EXCEEDED,
                           .examples = 0,
                           .answer_bytes = 0};
  tally_.Add(outcome, "never sent: all calls in flight waited for answers");
}

void GrpcLane::CloseIfIdleLocked() {
  if (!sending_ && free_.size() == calls_.size()) carrier_->Close();
}

}  // namespace embershard::bench
