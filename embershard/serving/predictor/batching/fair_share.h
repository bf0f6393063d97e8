// Which of several models runs the next batch: weighted fair queueing by measured cost. No clock,
// no lock, no thread.
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
  // A batch is cut to about this time while another model is active, since a worker cannot be
  // preempted.
  static constexpr std::chrono::milliseconds kChunk{5};
  // A model counts as active for so long after a batch of it began.
  static constexpr std::chrono::milliseconds kActive{100};

  struct Model {
    double weight = 1;
    size_t queues = 0;       // One for each version.
    double virtual_ns = 0;   // Where its next batch begins.
    uint64_t turn = 0;       // Of its last batch: breaks ties, least recently run first.
    Clock::time_point used;  // When a batch of it began last.
  };

  // One queue more of the model. The weight of its first queue holds; at least 1e-3.
  Model* Add(const std::string& name, double weight);
  void Remove(const std::string& name);

  // Whether `one` runs before `other`.
  bool IsBefore(const Model& one, const Model& other) const;

  // A batch begins that is expected to take so long, and has ended. Batches in several slots at
  // once are charged as they begin, and corrected as they end.
  void Begin(Model* model, std::chrono::nanoseconds expected, Clock::time_point now);
  void End(Model* model, std::chrono::nanoseconds expected, std::chrono::nanoseconds took);

  // Which part of the slots is the model's by its weight, beside the models that were active of
  // late: 1 where there are none.
  double ShareOf(const Model& model, Clock::time_point now) const;

 private:
  double StartOf(const Model& model) const;

  std::map<std::string, Model> models_;
  double now_ns_ = 0;  // The virtual time at which the last batch began.
  uint64_t turns_ = 0;
};

}  // namespace embershard
