// Copies of requests to the version labelled shadow, whose answers nobody sees but who compares
// them with those that were given.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "batching/request.h"
#include "engine/engine.h"

namespace embershard {

class ServedModels;

// The version of a model that is labelled shadow.
struct ShadowVersion {
  std::shared_ptr<Engine> engine;  // Null: there is none.
  bool only_shadow = false;        // It is not the default, and has no other label.
};

struct ShadowOptions {
  double share = 0;  // Of the requests, 0 .. 1, that are copied.

  // 1e-9 .. 1, the share of the time in which a batch of copies is under way, whether it has a
  // processor or waits for one; 1: always, while there are copies. No rest between two batches is
  // longer than a minute, be the share what it may.
  double time = 1.0 / 128;
};

// Counted in the telemetry of the shadow version. Thread-safe.
class Shadow {
 public:
  // Copies under way at once, and the messages that they hold. What is sampled beyond is counted,
  // and not copied.
  static constexpr size_t kUnderWayMax = 256;
  static constexpr uint64_t kUnderWayBytesMax = 64 << 20;

  // Does not own `served`, which must outlive it.
  Shadow(const ServedModels* served, const ShadowOptions& options);
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  ~Shadow();  // Waits for the batch of copies that runs.

  // As engine->Predict(); and once the request is answered well, perhaps, a copy for the shadow
  // version of the same model, where its inputs and outputs are the same. It runs in a share of the
  // time, and only while all other threads leave a processor; where the version answers others,
  // too, in its queue, at priority background. `engine` need not outlive the answer, nor this.
  void Predict(Engine* engine, std::unique_ptr<Request> request);

 private:
  class Copy;
  class Executor;

  bool Sampled();
  // The shadow version, where the request is in the sample and there is one.
  ShadowVersion Find(const Engine& engine);

  const ServedModels* const served_;
  const double share_;
  std::atomic<uint64_t> seen_ = 0;
  // Shared with the copies, which may outlive this. Null: share_ is 0.
  const std::shared_ptr<Executor> executor_;
};

}  // namespace embershard
