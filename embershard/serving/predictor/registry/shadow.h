// Sends copies of requests to the version labelled shadow, and compares its answers with those that
// clients received.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "batching/request.h"
#include "engine/engine.h"

namespace embershard {

class ServedModels;

struct ShadowVersion {
  std::shared_ptr<Engine> engine;  // Null if there is none.
  bool only_shadow = false;        // True if it is not the default and has no other label.
};

struct ShadowOptions {
  double share = 0;  // Share of requests to copy, 0 .. 1.
  // Share of the time in which batches of copies run, including their waits for a processor, from
  // 1e-9 to 1 (always, while there are copies). A rest between two batches never exceeds a minute.
  double time = 1.0 / 128;
};

// Thread-safe. Counts copies in the telemetry of the shadow version.
class Shadow {
 public:
  // Most copies under way, and most bytes of their messages. Further sampled requests are counted
  // but not copied.
  static constexpr size_t kUnderWayMax = 256;
  static constexpr uint64_t kUnderWayBytesMax = 64 << 20;

  Shadow(const ServedModels* served, const ShadowOptions& options);
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;
  ~Shadow();  // Waits for the batch of copies that runs.

  // Calls engine->Predict(). After a successful answer, a sampled request is also sent to the
  // shadow version of the same model, if its inputs and outputs are the same. The copy runs in a
  // share of the time, at idle scheduling priority. If the shadow version also answers other
  // requests, the copy goes through its queue instead, at priority background. Neither `engine` nor
  // this object need outlive the answer.
  void Predict(Engine* engine, std::unique_ptr<Request> request);

 private:
  class Copy;
  class Executor;

  bool Sampled();
  ShadowVersion Find(const Engine& engine);

  const ServedModels* const served_;
  const double share_;
  std::atomic<uint64_t> seen_ = 0;
  // Shared with the copies, which may outlive this object. Null if share_ is 0.
  const std::shared_ptr<Executor> executor_;
};

}  // namespace embershard
