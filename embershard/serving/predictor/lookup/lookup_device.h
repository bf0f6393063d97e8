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

// A phase begins after all devices have finished the phase before.
enum class LookupPhase {
  kSum,  // DeviceShare::tasks.
  kAdd,  // DeviceShare::adds.
};

// Threads take tasks from a shared list until none is left. Begin(), Wake() and End() must be
// called on one thread, which may call Work() in between.
class LookupDevice {
 public:
  // The first `callers` of the `threads` call Work() from outside; the device creates the others.
  // REQUIRES: threads >= 1.
  LookupDevice(std::string name, uint64_t table_bytes, size_t threads, size_t callers,
               const BagSumsKernel& kernel);
  LookupDevice(const LookupDevice&) = delete;
  LookupDevice& operator=(const LookupDevice&) = delete;

  // REQUIRES: `batch`, `share` and their data live until End() has returned.
  void Begin(LookupPhase phase, const LookupBatch& batch, const DeviceShare& share);

  // Wakes at most one of its own threads for each task, less `callers` tasks.
  void Wake(size_t callers);

  void Work(size_t thread);

  // Waits for the threads that were woken. Returns their first failure, if any.
  Status End();

  // Thread-safe.
  DeviceLoad load() const;

 private:
  size_t Tasks() const;
  Status RunTask(size_t task, size_t thread, bool from_back);
  void Count();

  const std::string name_;
  const uint64_t table_bytes_;

  std::atomic<uint64_t> lookup_ns_ = 0;
  std::atomic<uint64_t> batches_ = 0;
  std::atomic<uint64_t> rows_ = 0;

  // Written before the threads are woken.
  LookupPhase phase_ = LookupPhase::kSum;
  const LookupBatch* batch_ = nullptr;
  const DeviceShare* share_ = nullptr;
  size_t woken_ = 0;

  // Number of tasks taken from the front, plus kOneFromBack times the number from the back.
  static constexpr uint64_t kOneFromBack = uint64_t{1} << 32;
  std::atomic<uint64_t> taken_ = 0;

  // Buffers by thread; only that thread uses its element during a phase.
  std::vector<PieceSums> sums_;
  std::vector<Status> statuses_;
  std::vector<std::chrono::nanoseconds> elapsed_;

  std::vector<std::unique_ptr<TaskThread>> threads_;  // Last, since they use the fields above.
};

}  // namespace embershard
