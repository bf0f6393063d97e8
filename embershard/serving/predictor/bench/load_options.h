#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace embershard::bench {

// Certificates and keys in PEM format, or empty.
struct LoadTls {
  std::string ca;           // Empty for the roots that gRPC ships.
  std::string certificate;  // The client certificate.
  std::string key;          // The key of the client certificate.
  std::string server_name;  // Name in the server's certificate. Empty for the target's name.
};

// An open loop if `times` is set, else a closed loop.
struct LoadOptions {
  std::string target;  // A gRPC target, such as "ipv4:127.0.0.1:50051".
  std::string method;  // "/package.Service/Method". Unary unless `streams` is set.

  std::optional<LoadTls> tls;
  std::string token;  // Sent with every call, unless empty.

  // If above 0, this number of streams carries the requests of all lanes, with at least one stream
  // per lane. `method` then takes a stream of PredictRequest and returns one of PredictResponse.
  size_t streams = 0;

  // Ascending times since the start at which requests are due. They repeat every `times_period`.
  // Lanes take the requests in turn. Empty for a closed loop.
  std::vector<std::chrono::nanoseconds> times;
  std::chrono::nanoseconds times_period{};  // Longer than the last of `times`.

  // Unanswered calls over all lanes, at least one per lane. A closed loop always has this number.
  // An open loop has at most this number; the wait of further requests counts as latency.
  size_t in_flight = 1;

  Clock::duration warmup{};   // Requests that are due in it are not counted.
  Clock::duration measure{};  // Time after the warmup in which requests are due.
  uint64_t max_requests = 0;  // Ends the run early at this number of counted requests, unless 0.

  // Time from a request's due time to its deadline.
  Clock::duration timeout = std::chrono::seconds(1);

  // A lane has one thread that sends, one that receives, and its own connections.
  size_t lanes = 1;
  size_t connections_per_lane = 1;

  // Keeps the first OK answer to each request of the pool.
  bool keep_answers = false;

  bool open_loop() const { return !times.empty(); }

  // Requests are numbered from 0. REQUIRES: open_loop().
  std::chrono::nanoseconds DueAt(uint64_t number) const {
    return times[number % times.size()] +
           static_cast<int64_t>(number / times.size()) * times_period;
  }
};

// The share of part `index` if `total` is divided into `parts`. Shares differ by at most 1.
// REQUIRES: index < parts.
inline uint64_t ShareOf(uint64_t total, size_t index, size_t parts) {
  return total / parts + (index < total % parts ? 1 : 0);
}

}  // namespace embershard::bench
