// Requests of made-up sizes and times for a BatchFormer.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "batching/batch_former.h"
#include "batching/batching_options.h"
#include "batching/forecast.h"
#include "batching/request.h"
#include "batching/start.h"

namespace embershard {

inline std::unique_ptr<Request> Waiting(uint32_t examples, uint64_t ids = 0,
                                        Clock::time_point deadline = Clock::time_point::max()) {
  auto request = std::make_unique<Request>();
  request->num_examples = examples;
  request->num_ids = ids;
  request->deadline = deadline;
  return request;
}

inline BatchingOptions Small() {
  return {.max_batch_examples = 10,
          .max_batch_ids = 100,
          .merge_examples = 10,
          .max_queued_examples = 30,
          .max_queued_ids = 200,
          .max_queued_bytes = 1000};
}

inline Admission Add(BatchFormer* former, std::unique_ptr<Request> request,
                     Clock::time_point now = kStart) {
  const Admission admission = former->Add(request, Forecast(Small()), now);
  EXPECT_EQ(request == nullptr, admission == Admission::kAccepted);
  return admission;
}

inline std::vector<uint32_t> Examples(const Batch& batch) {
  std::vector<uint32_t> examples;
  for (const auto& request : batch) examples.push_back(request->num_examples);
  return examples;
}

using Counts = std::vector<uint32_t>;

// A model that is busy for another 5 ms, and takes 10 ms for any batch.
inline Forecast Busy() {
  Forecast forecast(Small());
  forecast.RunBegins(0, {1, 1, 1}, kStart - std::chrono::milliseconds(15));
  forecast.RunEnds(0, kStart - std::chrono::milliseconds(5));
  forecast.RunBegins(0, {1, 1, 1}, kStart - std::chrono::milliseconds(5));
  return forecast;
}

inline Admission AddDueIn(BatchFormer* former, uint32_t examples, int milliseconds_left,
                          const Forecast& forecast) {
  auto request = Waiting(examples, 1, kStart + std::chrono::milliseconds(milliseconds_left));
  return former->Add(request, forecast, kStart);
}

}  // namespace embershard
