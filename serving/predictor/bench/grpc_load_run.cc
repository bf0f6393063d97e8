#include "bench/grpc_load_run.h"

#include <algorithm>
#include <utility>

namespace embershard::bench {

GrpcLoadRun::GrpcLoadRun(const LoadOptions& options, RequestPool pool)
    : options_(options), pool_(std::move(pool)), running_(options.lanes) {
  for (size_t i = 0; i < options.lanes; ++i) {
    lanes_.push_back(std::make_unique<GrpcLane>(options_, i, &pool_));
  }
  const Clock::time_point connected_by = Clock::now() + options.timeout;
  for (const auto& lane : lanes_) {
    if (!lane->Connect(connected_by)) break;
  }
  start_ = Clock::now();
  for (const auto& lane : lanes_) {
    lane->Start(start_, [this] {
      std::lock_guard lock(mutex_);
      if (--running_ == 0) changed_.notify_all();
    });
  }
}

GrpcLoadRun::~GrpcLoadRun() {
  Stop();
  lanes_.clear();  // Before the fields that their threads use.
}

bool GrpcLoadRun::WaitFor(Clock::duration timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return running_ == 0; });
}

void GrpcLoadRun::Stop() {
  for (const auto& lane : lanes_) lane->Stop();
}

Tally GrpcLoadRun::tally() const {
  Tally all = lanes_[0]->tally();
  for (size_t i = 1; i < lanes_.size(); ++i) all.Merge(lanes_[i]->tally());
  return all;
}

std::vector<std::optional<grpc::ByteBuffer>> GrpcLoadRun::TakeAnswers() {
  std::vector<std::optional<grpc::ByteBuffer>> all = lanes_[0]->TakeAnswers();
  for (size_t lane = 1; lane < lanes_.size(); ++lane) {
    std::vector<std::optional<grpc::ByteBuffer>> answers = lanes_[lane]->TakeAnswers();
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].has_value()) all[i] = std::move(answers[i]);
    }
  }
  return all;
}

double GrpcLoadRun::busiest_thread_share() const {
  double share = 0;
  for (const auto& lane : lanes_) share = std::max(share, lane->busiest_thread_share());
  return share;
}

}  // namespace embershard::bench
