#include "engine/shadow_executor.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/clock.h"

namespace embershard {
namespace {

// A batch that waited long for a processor does not end comparing for as many times as long.
constexpr std::chrono::duration<double> kLongestRest = std::chrono::minutes(1);

// How often copies that wait are looked at.
constexpr std::chrono::milliseconds kLookEvery{100};

void Refuse(const std::unique_ptr<Request>& copy, Status status) {
  if (copy != nullptr) copy->answer(std::move(status), {});
}

Status NoShadow() { return {StatusCode::kUnavailable, "the version is no shadow any more"}; }

}  // namespace

ShadowExecutor::ShadowExecutor(IsShadow is_shadow, double time)
    : is_shadow_(std::move(is_shadow)), time_(time), thread_([this] { Loop(); }) {}

ShadowExecutor::~ShadowExecutor() { Stop(); }

void ShadowExecutor::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void ShadowExecutor::Give(std::shared_ptr<Engine> engine, std::unique_ptr<Request> copy) noexcept {
  bool wake = false;
  bool stopped = false;
  try {
    const MutexLock lock(mutex_);
    stopped = stopping_;
    if (!stopped) {
      waiting_.emplace_back();
      waiting_.back() = {.engine = std::move(engine), .copy = std::move(copy)};
      wake = waiting_.size() == 1;
    }
  } catch (const std::exception&) {
    return Refuse(copy, OutOfMemory());
  }
  if (stopped) return Refuse(copy, ShuttingDown());
  if (wake) changed_.NotifyOne();
}

void ShadowExecutor::Loop() {
  (void)GiveWayToOthers();  // Where it cannot, the copies are run all the same.
  std::list<Waiting> taken;
  Clock::time_point next;
  while (Take(next, &taken)) {
    RefuseOthers(&taken);
    if (!taken.empty() && Clock::now() >= next) next = RunFirst(&taken);
  }
  for (const Waiting& each : taken) Refuse(each.copy, ShuttingDown());
}

bool ShadowExecutor::Take(Clock::time_point next, std::list<Waiting>* taken) {
  const MutexLock lock(mutex_);
  while (taken->empty() && !stopping_ && waiting_.empty()) changed_.Wait(mutex_);
  const Clock::time_point look = std::min(next, Clock::now() + kLookEvery);
  while (!stopping_ && changed_.WaitUntil(mutex_, look)) continue;
  taken->splice(taken->end(), waiting_);
  return !stopping_;
}

void ShadowExecutor::RefuseOthers(std::list<Waiting>* taken) {
  const Engine* asked = nullptr;
  bool is_shadow = false;
  std::erase_if(*taken, [&](const Waiting& each) {
    if (each.engine.get() != asked) is_shadow = is_shadow_(*each.engine);
    asked = each.engine.get();
    if (!is_shadow) Refuse(each.copy, NoShadow());
    return !is_shadow;
  });
}

Clock::time_point ShadowExecutor::RunFirst(std::list<Waiting>* taken) {
  const Clock::time_point begin = Clock::now();
  const double cpu_before = ThreadCpuSeconds();
  const std::shared_ptr<Engine> engine = taken->front().engine;
  std::vector<std::unique_ptr<Request>> batch;
  try {
    batch.reserve(kBatchCopies);
  } catch (const std::exception&) {  // Memory has run out.
    Refuse(taken->front().copy, OutOfMemory());
    taken->pop_front();
    return begin;
  }
  uint64_t examples = 0;
  while (!taken->empty() && taken->front().engine == engine && batch.size() < kBatchCopies) {
    std::unique_ptr<Request>& copy = taken->front().copy;
    examples += copy->num_examples;
    if (!batch.empty() && examples > kBatchExamples) break;
    batch.push_back(std::move(copy));
    taken->pop_front();
  }
  engine->PredictMerged(std::move(batch));
  const Clock::duration took = Clock::now() - begin;
  engine->telemetry().CountShadowBatch(took, ThreadCpuSeconds() - cpu_before);
  const std::chrono::duration<double> ran = took;
  const std::chrono::duration<double> turn = std::min(ran / time_, ran + kLongestRest);
  return begin + std::chrono::duration_cast<Clock::duration>(turn);
}

}  // namespace embershard
