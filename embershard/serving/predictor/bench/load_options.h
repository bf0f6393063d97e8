#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace embershard::bench {

// PEM texts, and empty ones for none.
struct LoadTls {
  std::string ca;           // Empty: those that gRPC ships.
  std::string certificate;  // The tool's own...
  std::string key;          // ...and its key.
  std::string server_name;  // That the certificate must have. Empty: the target's.
};

// What a run does. Open loop if there are times, else closed loop.
struct LoadOptions {
  std::string target;  // As gRPC names it: ipv4:127.0.0.1:50051.
  std::string method;  // "/package.Service/Method", unary.

  std::optional<LoadTls> tls;  // Nothing: without.
  std::string token;           // That every call carries. Empty: none.

  // Above 0: so many streams carry the requests, over all lanes, at least one a lane, and
  // `method` takes and gives streams of PredictRequest and PredictResponse.
  size_t streams = 0;

  // When requests leave, since the start, in order; all of it again every period. Lanes take them
  // in turn. Empty: closed loop.
  std::vector<std::chrono::nanoseconds> times;
  std::chrono::nanoseconds times_period{};  // Longer than the last of them.

  // Calls waiting for an answer, over all lanes, at least one a lane. Closed loop: kept
  // at this number. Open loop: the most there may be; beyond it requests are sent late,
  // and their wait counts.
  size_t in_flight = 1;

  Clock::duration warmup{};   // Before it is over nothing is counted.
  Clock::duration measure{};  // Then requests are scheduled for this long...
  uint64_t max_requests = 0;  // ...or until so many count. 0: no such limit.

  // Deadline of a request, from its schedule.
  Clock::duration timeout = std::chrono::seconds(1);

  // Each lane is a thread that sends, one that receives, and connections of its own.
  size_t lanes = 1;
  size_t connections_per_lane = 1;

  // Whether the first good answer to each request of the pool is kept.
  bool keep_answers = false;

  bool open_loop() const { return !times.empty(); }

  // Of the request of that number, from 0. REQUIRES: open_loop().
  std::chrono::nanoseconds DueAt(uint64_t number) const {
    return times[number % times.size()] +
           static_cast<int64_t>(number / times.size()) * times_period;
  }
};

// The part of `total` that falls to one of several: they differ by 1 at most.
// REQUIRES: index < of.
inline uint64_t ShareOf(uint64_t total, size_t index, size_t of) {
  return total / of + (index < total % of ? 1 : 0);
}

}  // namespace embershard::bench
