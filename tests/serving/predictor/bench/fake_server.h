// A gRPC server that does what a test plans, and states what it did.

#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace embershard::bench {

// How the fake server handles a request. Requests are numbered from 0.
struct Plan {
  Clock::duration delay{0};
  grpc::StatusCode code = grpc::StatusCode::OK;
};

inline std::string TextOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!message.Dump(&slices).ok()) return text;
  for (const grpc::Slice& part : slices) {
    text.append(reinterpret_cast<const char*>(part.begin()), part.size());
  }
  return text;
}

// Echoes the bytes of every call as planned, without a thread that waits, and records when it did.
class FakeServer : public grpc::CallbackGenericService {
 public:
  explicit FakeServer(std::function<Plan(uint64_t)> plan) : plan_(std::move(plan)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeServer() override {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  }

  std::string target() const { return "ipv4:127.0.0.1:" + std::to_string(port_); }
  uint64_t seen() const { return seen_; }
  // The largest number of requests that were without an answer at one time.
  uint64_t most_at_once() const {
    std::lock_guard lock(mutex_);
    return most_at_once_;
  }
  std::multiset<std::string> bodies() const {
    std::lock_guard lock(mutex_);
    return bodies_;
  }
  // When the last answer to each message began.
  std::map<std::string, Clock::time_point> answered() const {
    std::lock_guard lock(mutex_);
    return answered_;
  }
  std::set<std::string> peers() const {
    std::lock_guard lock(mutex_);
    return peers_;
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new Reactor(this, context);
  }

 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor(FakeServer* server, grpc::GenericCallbackServerContext* context) : server_(server) {
      server_->Note(context->peer());
      StartRead(&message_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      const Plan plan = server_->Take(message_);
      code_ = plan.code;
      if (plan.delay == Clock::duration::zero()) return Answer();
      alarm_.Set(std::chrono::system_clock::now() + plan.delay, [this](bool) { Answer(); });
      if (cancelled_) alarm_.Cancel();
    }
    void OnCancel() override {  // The end of a test does not wait for the alarm.
      cancelled_ = true;
      alarm_.Cancel();
    }
    void OnDone() override { delete this; }

   private:
    void Answer() {
      server_->NoteAnswer(message_);
      if (code_ != grpc::StatusCode::OK) return Finish(grpc::Status(code_, "as planned"));
      StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
    }

    FakeServer* const server_;
    grpc::ByteBuffer message_;
    grpc::StatusCode code_ = grpc::StatusCode::OK;
    std::atomic<bool> cancelled_ = false;  // May be set before the alarm is.
    grpc::Alarm alarm_;
  };

  void Note(const std::string& peer) {
    std::lock_guard lock(mutex_);
    peers_.insert(peer);
  }

  Plan Take(const grpc::ByteBuffer& message) {
    std::lock_guard lock(mutex_);
    bodies_.insert(TextOf(message));
    most_at_once_ = std::max(most_at_once_, ++unanswered_);
    return plan_(seen_++);
  }

  void NoteAnswer(const grpc::ByteBuffer& message) {
    std::lock_guard lock(mutex_);
    answered_[TextOf(message)] = Clock::now();
    --unanswered_;
  }

  const std::function<Plan(uint64_t)> plan_;
  std::atomic<uint64_t> seen_ = 0;
  mutable std::mutex mutex_;
  std::multiset<std::string> bodies_;  // Guarded by mutex_, as all below.
  std::map<std::string, Clock::time_point> answered_;
  std::set<std::string> peers_;
  uint64_t unanswered_ = 0;
  uint64_t most_at_once_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace embershard::bench
