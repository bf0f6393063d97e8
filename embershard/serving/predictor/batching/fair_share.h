// Chooses the model that runs the next batch: weighted fair queueing by measured cost. No clock, no
// lock, no thread.
//
//   virtual time of a model   the time that its batches took, divided by its weight
//   next batch                of the model with the least virtual time among those with work
//   a model that was idle     continues at the virtual time of the batch that began last: it saved
//                             nothing up while it had no work

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/clock.h"

namespace embershard {

// Not thread-safe. Pointers to shares stay valid until their last Remove().
class FairShare {
 public:
  // A batch is cut to about this time while another model is active: workers are not preempted.
  static constexpr std::chrono::milliseconds kChunk{5};
  // A model counts as active for so long after a batch of it began.
  static constexpr std::chrono::milliseconds kActive{100};

  struct Model {
    double weight = 1;
    size_t queues = 0;       // One for each version.
    double virtual_ns = 0;   // Virtual time at which its next batch starts.
    uint64_t turn = 0;       // Turn of its last batch; breaks ties, least recently run first.
    Clock::time_point used;  // Start of its last batch.
  };

  // Adds a queue of the model. The weight of its first queue counts; it is at least 1e-3.
  Model* Add(const std::string& name, double weight);
  void Remove(const std::string& name);

  bool IsBefore(const Model& one, const Model& other) const;

  // Charge a model with a batch's expected time when it begins, and correct that by the measured
  // time when it ends. Charging at the start matters because batches run in several slots at once.
  void Begin(Model* model, std::chrono::nanoseconds expected, Clock::time_point now);
  void End(Model* model, std::chrono::nanoseconds expected, std::chrono::nanoseconds took);

  // Part of the slots that the model gets by its weight among recently active models.
  double ShareOf(const Model& model, Clock::time_point now) const;

 private:
  double StartOf(const Model& model) const;

  std::map<std::string, Model> models_;
  double now_ns_ = 0;  // The virtual time at which the last batch began.
  uint64_t turns_ = 0;
};

}  // namespace embershard
