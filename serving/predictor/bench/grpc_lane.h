// One sending and one receiving thread of a run, with connections of their own.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bench/grpc_carrier.h"
#include "bench/load_options.h"
#include "bench/tally.h"

namespace embershard::bench {

// Every request that is scheduled gets one outcome in the tally, at the latest when its
// deadline passes. Stop() alone leaves requests out. Any thread may call.
class GrpcLane {
 public:
  // `options` are those of the run, of which this lane takes its share. They and `pool`, which
  // must not be empty, must outlive the lane.
  GrpcLane(const LoadOptions& options, size_t index, const RequestPool* pool);

  GrpcLane(const GrpcLane&) = delete;
  GrpcLane& operator=(const GrpcLane&) = delete;

  ~GrpcLane();  // Stops and waits.

  // Waits until its connections stand, or `deadline`. Whether they all do.
  bool Connect(Clock::time_point deadline);

  // Begins to send. `finished` is called on a thread of the lane after the last outcome.
  // REQUIRES: called once.
  void Start(Clock::time_point start, std::function<void()> finished);

  // Sends nothing more and cancels what is under way, without an outcome.
  void Stop();

  Tally tally() const;

  // With keep_answers: for each request of the pool the first answer that was OK, if any.
  // REQUIRES: `finished` has been called. Leaves none here.
  std::vector<std::optional<grpc::ByteBuffer>> TakeAnswers();

  // The share of the run that the busier thread was on a core, 0..1. 0 until finished.
  double busiest_thread_share() const;

 private:
  struct Call {
    size_t slot = 0;  // Of the carrier, and its place in calls_.
    Clock::time_point scheduled;
    Clock::time_point sent;
    size_t request = 0;  // Its place in the pool.
  };

  void SendLoop();
  void SendOpenLoop();
  void SendClosedLoop();
  void ReceiveLoop(const std::function<void()>& finished);

  bool WaitUntil(Clock::time_point due);           // False: stopped.
  Call* WaitForCall(Clock::time_point scheduled);  // Null: stopped, or its deadline passed.
  bool AdmitLocked(Clock::time_point scheduled);   // Whether the run still takes a request.
  void BeginLocked(Call* call, Clock::time_point scheduled);
  void Send(Call* call);
  bool Receive(const Carried& carried, Clock::time_point now);  // True: it is to be sent again.
  void Expire(Clock::time_point scheduled);
  void CloseIfIdleLocked();

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
  uint64_t admitted_ = 0;  // That count.
  uint64_t next_request_;  // In the row of all lanes' requests, of which each takes every n-th.
  bool sending_ = false;
  double sender_cpu_seconds_ = 0;
  double busiest_thread_share_ = 0;

  std::thread sender_;
  std::thread receiver_;
};

}  // namespace embershard::bench
