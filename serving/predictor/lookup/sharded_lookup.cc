#include "lookup/sharded_lookup.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lookup/batch_cut.h"
#include "lookup/device_thread.h"
#include "lookup/lookup_part.h"
#include "lookup/piece_sums.h"

namespace embershard {
namespace {

// The devices are done with one phase before the next begins.
enum class Phase { kSum, kAdd };

// One device of the plan: its share of the batch, and the threads that take from it.
class Device {
 public:
  Device(std::string name, size_t threads, const BagSumsKernel& kernel) : name_(std::move(name)) {
    for (size_t i = 0; i < threads; ++i) sums_.emplace_back(kernel);
    statuses_.resize(threads);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Gives it threads of its own but for the first `callers` ones, which call Work() themselves.
  void StartThreads(size_t callers) {
    for (size_t i = callers; i < sums_.size(); ++i) {
      threads_.push_back(std::make_unique<DeviceThread>([this, i] { Work(i); }));
    }
  }

  // REQUIRES: what both point to lives until the phase is over.
  void Begin(Phase phase, const LookupBatch& batch, const DeviceShare& share) {
    phase_ = phase;
    batch_ = &batch;
    share_ = &share;
    next_.store(0, std::memory_order_relaxed);
    woken_ = 0;
  }

  // As many of its own threads as have something to do, when `helped` of its tasks are done by
  // callers.
  void Wake(size_t helped) {
    const size_t tasks = Tasks();
    while (woken_ < threads_.size() && helped + woken_ < tasks) threads_[woken_++]->Start();
  }

  // Takes what is left to do, until there is nothing. As the thread of that number.
  void Work(size_t thread) {
    try {
      const size_t tasks = Tasks();
      for (size_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
        if (Status status = RunTask(i, thread); !status.ok()) {
          statuses_[thread] = std::move(status);
          return;
        }
      }
    } catch (const std::exception& error) {
      statuses_[thread] = Internal("lookup on device '" + name_ + "': " + error.what());
    }
  }

  // Waits for the threads that were woken. The first failure of all, if any.
  Status End() {
    for (size_t i = 0; i < woken_; ++i) threads_[i]->Wait();
    Status first;
    for (Status& status : statuses_) {
      if (first.ok()) first = std::move(status);
      status = {};
    }
    return first;
  }

 private:
  size_t Tasks() const {
    return phase_ == Phase::kSum ? share_->tasks.size() : share_->adds.size();
  }

  Status RunTask(size_t task, size_t thread) {
    if (phase_ == Phase::kAdd) {
      PieceSums::Add(share_->adds[task], *batch_);
      return {};
    }
    const auto [begin, end] = share_->tasks[task];
    return sums_[thread].Sum(std::span(share_->pieces).subspan(begin, end - begin), *batch_);
  }

  const std::string name_;

  // Written between the phases, by the thread that calls Run().
  Phase phase_ = Phase::kSum;
  const LookupBatch* batch_ = nullptr;
  const DeviceShare* share_ = nullptr;
  size_t woken_ = 0;

  std::atomic<size_t> next_ = 0;  // Task.

  // One for each thread, used by it alone during a phase.
  std::vector<PieceSums> sums_;
  std::vector<Status> statuses_;

  std::vector<std::unique_ptr<DeviceThread>> threads_;  // Last: they use the fields above.
};

class ShardedLookup final : public Lookup {
 public:
  ShardedLookup(std::vector<LookupPart> parts, std::vector<std::unique_ptr<Device>> devices,
                size_t own_device, uint64_t alone_bytes)
      : parts_(std::move(parts)),
        cut_(parts_, devices.size()),
        own_device_(own_device),
        alone_bytes_(alone_bytes),
        devices_(std::move(devices)) {}

  Status Run(std::span<const JaggedRows> sparse, PooledMatrix request,
             PooledMatrix example) override {
    cut_.Cut(parts_, sparse, request.bags, example.bags);
    if (further_.size() < cut_.further_size()) further_.resize(cut_.further_size());
    const LookupBatch batch{parts_, sparse, request, example, &cut_, further_.data()};
    Status status = RunPhase(Phase::kSum, batch);
    if (status.ok() && cut_.further_size() > 0) status = RunPhase(Phase::kAdd, batch);
    return status;
  }

 private:
  Status RunPhase(Phase phase, const LookupBatch& batch) {
    const bool alone = cut_.bytes() < alone_bytes_;
    for (size_t i = 0; i < devices_.size(); ++i) {
      devices_[i]->Begin(phase, batch, cut_.shares()[i]);
      if (!alone) devices_[i]->Wake(i == own_device_ ? 1 : 0);
    }
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (alone || i == own_device_) devices_[i]->Work(0);
    }
    Status first;
    for (const auto& device : devices_) {
      Status status = device->End();
      if (first.ok()) first = std::move(status);
    }
    return first;
  }

  const std::vector<LookupPart> parts_;
  BatchCut cut_;
  std::vector<float> further_;
  const size_t own_device_;  // For which the thread that calls Run() works.
  const uint64_t alone_bytes_;
  std::vector<std::unique_ptr<Device>> devices_;  // Last: their threads read what is above.
};

}  // namespace

Result<std::unique_ptr<Lookup>> MakeShardedLookup(const Package& package,
                                                  const ShardedLookupOptions& options) {
  Result<std::vector<LookupPart>> parts = LookupPartsOf(package);
  if (!parts.ok()) return parts.status();
  std::vector<bool> used(package.plan().devices.size());
  for (const LookupPart& part : *parts) {
    for (const size_t device : part.devices) used[device] = true;
  }
  const auto sharing = std::max<size_t>(1, static_cast<size_t>(std::ranges::count(used, true)));
  const size_t threads = options.threads > 0 ? static_cast<size_t>(options.threads)
                                             : std::thread::hardware_concurrency();
  const BagSumsKernel& kernel = options.kernel != nullptr ? *options.kernel : BestBagSums();
  try {
    std::vector<std::unique_ptr<Device>> devices;
    const auto own = static_cast<size_t>(std::ranges::find(used, true) - used.begin());
    size_t extra = threads % sharing;
    for (size_t i = 0; i < used.size(); ++i) {
      const size_t of_device = std::max<size_t>(1, threads / sharing + (extra > 0 ? 1 : 0));
      devices.push_back(
          std::make_unique<Device>(package.plan().devices[i], used[i] ? of_device : 1, kernel));
      if (!used[i]) continue;
      devices.back()->StartThreads(i == own ? 1 : 0);
      if (extra > 0) --extra;
    }
    return std::unique_ptr<Lookup>(std::make_unique<ShardedLookup>(
        std::move(*parts), std::move(devices), own, options.alone_bytes));
  } catch (const std::exception& error) {
    return Internal(std::string("lookup: ") + error.what());
  }
}

}  // namespace embershard
