// One device of a plan at work on its share of a batch.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/task_thread.h"
#include "lookup/bag_sums.h"
#include "lookup/batch_cut.h"
#include "lookup/lookup.h"
#include "lookup/piece_sums.h"

namespace embershard {

// All devices are done with one phase of a batch before the next begins.
enum class LookupPhase {
  kSum,  // Tasks of DeviceShare.
  kAdd,  // Its adds.
};

// Threads take tasks from one another's list until none is left. Begin(), Wake() and End() are
// for one thread, which may Work() in between.
class LookupDevice {
 public:
  // `threads` take part, at least one; the first `callers` of them are those of whoever calls
  // Work(), the others its own.
  LookupDevice(std::string name, uint64_t table_bytes, size_t threads, size_t callers,
               const BagSumsKernel& kernel);
  LookupDevice(const LookupDevice&) = delete;
  LookupDevice& operator=(const LookupDevice&) = delete;

  // REQUIRES: what both point to lives until End() has returned.
  void Begin(LookupPhase phase, const LookupBatch& batch, const DeviceShare& share);

  // Wakes as many of its own threads as there are tasks but `callers`.
  void Wake(size_t callers);

  // Does what is left to do, as the thread of that number. Returns when nothing is.
  void Work(size_t thread);

  // Waits for the threads that were woken. Their first failure, if any.
  Status End();

  // Any thread, at any time.
  DeviceLoad load() const;

 private:
  size_t Tasks() const;
  Status RunTask(size_t task, size_t thread, bool from_back);
  void Count();

  const std::string name_;
  const uint64_t table_bytes_;

  // Sums over batches.
  std::atomic<uint64_t> lookup_ns_ = 0;
  std::atomic<uint64_t> batches_ = 0;
  std::atomic<uint64_t> rows_ = 0;

  // Written before the threads are woken.
  LookupPhase phase_ = LookupPhase::kSum;
  const LookupBatch* batch_ = nullptr;
  const DeviceShare* share_ = nullptr;
  size_t woken_ = 0;

  // Tasks that threads have taken from the front, and kOneFromBack times those from the back.
  static constexpr uint64_t kOneFromBack = uint64_t{1} << 32;
  std::atomic<uint64_t> taken_ = 0;

  // One for each thread, used by it alone during a phase.
  std::vector<PieceSums> sums_;
  std::vector<Status> statuses_;
  std::vector<std::chrono::nanoseconds> elapsed_;

  std::vector<std::unique_ptr<TaskThread>> threads_;  // Last: they use the fields above.
};

}  // namespace embershard
