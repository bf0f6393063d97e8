// A clock and a model that go on when a test says so: batches take as long as it says.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <semaphore>

#include "base/clock.h"
#include "batching/fake_model.h"

namespace embershard {

// Stands still but for Advance(). Any thread may read it.
class SteppedClock {
 public:
  explicit SteppedClock(Clock::time_point start) : now_(start.time_since_epoch().count()) {}

  // For EngineOptions, of engines that this outlives.
  std::function<Clock::time_point()> now() {
    return [this] { return Clock::time_point(Clock::duration(now_.load())); };
  }
  void Advance(Clock::duration by) { now_ += by.count(); }

 private:
  std::atomic<Clock::rep> now_;
};

// A model that blocks in each run until it is released. Outlives the model's engine.
class SteppedModel {
 public:
  std::unique_ptr<FakeModel> model() {
    auto model = std::make_unique<FakeModel>();
    model->before_run = [this](const Slot&) {
      begun_.release();
      ends_.acquire();
      return Status();
    };
    return model;
  }
  // Waits for the next run. The run before it has ended by then, also for the forecast.
  void WaitUntilRunning() { begun_.acquire(); }
  void LetGo() { ends_.release(); }
  void LetAllGo() { ends_.release(kMany); }

 private:
  static constexpr std::ptrdiff_t kMany = 1 << 20;

  std::counting_semaphore<> begun_{0};
  std::counting_semaphore<> ends_{0};
};

}  // namespace embershard
