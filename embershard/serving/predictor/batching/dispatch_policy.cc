#include "batching/dispatch_policy.h"

#include <algorithm>

namespace embershard {
namespace {

// kDispatchWork or kDispatchWait, longer if half of the slots run.
std::chrono::microseconds ForNextSlot(std::chrono::microseconds time,
                                      const DispatchQuestion& question) {
  const bool half_run = question.free <= question.slots / 2;
  return half_run ? kLastHalfTimes * time : time;
}

// Assumes that the work takes a quarter longer than predicted.
Clock::time_point LatestBegin(const DispatchQuestion& question) {
  return question.deadline - question.work * 5 / 4;
}

}  // namespace

bool ShouldDispatch(const DispatchQuestion& question) {
  if (question.has_chunk || question.fills_batch || question.work.count() == 0) return true;
  if (question.work >= ForNextSlot(kDispatchWork, question)) return true;
  if (question.work / kLongRequest >= static_cast<int64_t>(question.requests)) return true;
  const Clock::time_point waits_until = std::max(question.first_end, question.now);
  if (waits_until >= LatestBegin(question)) return true;
  const auto ends_in = question.first_end - question.now;
  const auto long_wait = ForNextSlot(kDispatchWait, question);
  return ends_in >= long_wait || ends_in <= -long_wait;
}

Clock::time_point NextDispatchTime(const DispatchQuestion& question) {
  return std::min(question.first_end + ForNextSlot(kDispatchWait, question), LatestBegin(question));
}

}  // namespace embershard
