#include "engine/copy_runner.h"

#include <exception>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/clock.h"
#include "base/out_of_memory.h"

namespace embershard {
namespace {

void Refuse(const std::unique_ptr<Request>& copy, Status status) {
  if (copy != nullptr) copy->answer(std::move(status), {});
}

Status TooLate() {
  return {StatusCode::kDeadlineExceeded, "the deadline passed while the copy waited"};
}

Status NoShadow() { return {StatusCode::kUnavailable, "the version is no shadow any more"}; }

}  // namespace

CopyRunner::CopyRunner(IsShadow is_shadow)
    : is_shadow_(std::move(is_shadow)), thread_([this] { Loop(); }) {}

CopyRunner::~CopyRunner() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CopyRunner::Give(std::shared_ptr<Engine> engine, std::unique_ptr<Request> copy) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    waiting_.emplace_back();
    waiting_.back() = {.engine = std::move(engine), .copy = std::move(copy)};
  } catch (const std::exception&) {
    return Refuse(copy, OutOfMemory());
  }
  changed_.notify_one();
}

void CopyRunner::Loop() {
  (void)GiveWayToOthers();  // Where it cannot, the copies are run all the same.
  std::deque<Waiting> taken;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    taken.swap(waiting_);
    lock.unlock();
    while (!taken.empty() && !stopping_) RunFirst(&taken);
    for (const Waiting& each : taken) Refuse(each.copy, ShuttingDown());
    taken.clear();
    lock.lock();
  }
  for (const Waiting& each : waiting_) Refuse(each.copy, ShuttingDown());
}

void CopyRunner::RunFirst(std::deque<Waiting>* waiting) {
  const std::shared_ptr<Engine> engine = waiting->front().engine;
  std::vector<std::unique_ptr<Request>> batch;
  try {
    batch.reserve(kBatchCopies);
    const bool is_shadow = is_shadow_(*engine);
    uint64_t examples = 0;
    while (!waiting->empty() && waiting->front().engine == engine && batch.size() < kBatchCopies) {
      std::unique_ptr<Request>& copy = waiting->front().copy;
      examples += copy->num_examples;
      if (!batch.empty() && examples > kBatchExamples) break;
      if (!is_shadow) {
        Refuse(copy, NoShadow());
      } else if (copy->deadline <= Clock::now()) {
        Refuse(copy, TooLate());
      } else {
        batch.push_back(std::move(copy));
      }
      waiting->pop_front();
    }
    if (!batch.empty()) engine->PredictMerged(std::move(batch));
  } catch (const std::exception&) {  // Memory has run out.
    for (const std::unique_ptr<Request>& copy : batch) Refuse(copy, OutOfMemory());
    if (waiting->empty()) return;
    Refuse(waiting->front().copy, OutOfMemory());
    waiting->pop_front();
  }
}

}  // namespace embershard
