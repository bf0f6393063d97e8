// A run under load, from the first request to the last answer.

#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "bench/grpc_carrier.h"
#include "bench/grpc_lane.h"
#include "bench/load_options.h"
#include "bench/tally.h"

namespace embershard::bench {

// Any thread may call. It ends by itself after warmup + measure + timeout.
class GrpcLoadRun {
 public:
  // Connects and begins. Where no server answers within the timeout it begins all the
  // same: that requests fail is what there is to count.
  // REQUIRES: lanes and connections_per_lane of at least 1, in_flight >= lanes,
  // max_requests of 0 or >= lanes, and requests in the pool.
  GrpcLoadRun(const LoadOptions& options, RequestPool pool);
  ~GrpcLoadRun();  // Stops and waits.

  // Until the last answer, or `timeout`. Whether the run is over.
  bool WaitFor(Clock::duration timeout);

  // Ends early; what has been counted stays.
  void Stop();

  Tally tally() const;

  // With keep_answers: as GrpcLane::TakeAnswers(), of all lanes.
  // REQUIRES: it is over.
  std::vector<std::optional<grpc::ByteBuffer>> TakeAnswers();

  // When the first request could leave: arrivals count from here.
  Clock::time_point start() const { return start_; }

  double busiest_thread_share() const;  // 0 until it is over.

 private:
  const LoadOptions options_;
  const RequestPool pool_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // running_ became 0.
  Clock::time_point start_;
  size_t running_;  // Guarded by mutex_.
  std::vector<std::unique_ptr<GrpcLane>> lanes_;
};

}  // namespace embershard::bench
