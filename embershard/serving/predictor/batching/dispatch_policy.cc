#include "batching/dispatch_policy.h"

#include <algorithm>

namespace embershard {
namespace {

// Of kMuchWork or kLongWait, for the slot that would be next.
std::chrono::microseconds ForNextSlot(std::chrono::microseconds time,
                                      const DispatchQuestion& question) {
  const bool half_run = question.free <= question.slots / 2;
  return half_run ? kLastHalfTimes * time : time;
}

// When it has to begin for the earliest deadline; the work may take a quarter longer.
Clock::time_point LatestBegin(const DispatchQuestion& question) {
  return question.deadline - question.work * 5 / 4;
}

}  // namespace

bool Dispatches(const DispatchQuestion& question) {
  if (question.has_chunk || question.fills_batch || question.work.count() == 0) return true;
  if (question.work >= ForNextSlot(kMuchWork, question)) return true;
  if (question.work / kLongRequest >= static_cast<int64_t>(question.requests)) return true;
  const Clock::time_point waits_until = std::max(question.first_end, question.now);
  if (waits_until >= LatestBegin(question)) return true;
  const auto ends_in = question.first_end - question.now;
  const auto long_wait = ForNextSlot(kLongWait, question);
  return ends_in >= long_wait || ends_in <= -long_wait;
}

Clock::time_point AsksAgain(const DispatchQuestion& question) {
  return std::min(question.first_end + ForNextSlot(kLongWait, question), LatestBegin(question));
}

}  // namespace embershard
