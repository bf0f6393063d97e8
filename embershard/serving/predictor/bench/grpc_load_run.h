#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/grpc_lane.h"
#include "bench/grpc_transport.h"
#include "bench/load_options.h"
#include "bench/tally.h"

namespace embershard::bench {

// The run ends by itself after warmup + measure + timeout. Thread-safe.
class GrpcLoadRun {
 public:
  // Connects and starts. The run also starts if no server answers within options.timeout. Its
  // failed requests are then counted.
  // REQUIRES: lanes >= 1, connections_per_lane >= 1, in_flight >= lanes, max_requests is 0 or
  // >= lanes, and the pool is not empty.
  GrpcLoadRun(const LoadOptions& options, RequestPool pool)
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

  ~GrpcLoadRun() {
    Stop();
    lanes_.clear();  // Their threads use the other fields.
  }

  // Waits for the last answer. Returns true if the run is over.
  bool WaitFor(Clock::duration timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return running_ == 0; });
  }

  void Stop() {
    for (const auto& lane : lanes_) lane->Stop();
  }

  Tally tally() const {
    Tally all = lanes_[0]->tally();
    for (size_t i = 1; i < lanes_.size(); ++i) all.Merge(lanes_[i]->tally());
    return all;
  }

  // See GrpcLane::TakeAnswers(). REQUIRES: the run is over.
  std::vector<std::optional<grpc::ByteBuffer>> TakeAnswers() {
    std::vector<std::optional<grpc::ByteBuffer>> all = lanes_[0]->TakeAnswers();
    for (size_t lane = 1; lane < lanes_.size(); ++lane) {
      std::vector<std::optional<grpc::ByteBuffer>> answers = lanes_[lane]->TakeAnswers();
      for (size_t i = 0; i < all.size(); ++i) {
        if (!all[i].has_value()) all[i] = std::move(answers[i]);
      }
    }
    return all;
  }

  // Time zero of the schedule.
  Clock::time_point start() const { return start_; }

  // The largest GrpcLane::busiest_thread_share() of all lanes. 0 until the run is over.
  double busiest_thread_share() const {
    double share = 0;
    for (const auto& lane : lanes_) share = std::max(share, lane->busiest_thread_share());
    return share;
  }

 private:
  const LoadOptions options_;
  const RequestPool pool_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // Signals that running_ is 0.
  Clock::time_point start_;
  size_t running_;  // Number of unfinished lanes. Guarded by mutex_.
  std::vector<std::unique_ptr<GrpcLane>> lanes_;
};

}  // namespace embershard::bench
