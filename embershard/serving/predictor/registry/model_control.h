// Runs load and unload requests in the background, while predictions are answered.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "registry/model_loader.h"
#include "registry/model_source.h"
#include "registry/served_models.h"

namespace embershard {

// Thread-safe. A thread of its own runs one request at a time.
class ModelControl {
 public:
  // Most queued requests. Further ones are refused.
  static constexpr size_t kOrdersMax = 32;

  // Called once with the outcome: on the control's thread, or inside the request if it is refused.
  // Must neither throw nor block.
  using Done = std::function<void(const LoadOutcome&)>;

  // True if the caller cancelled the request, which is then not run (kAbandoned). Called once, on
  // the control's thread. Must neither throw nor block.
  using Abandoned = std::function<bool()>;
  static bool Never() { return false; }

  ModelControl(ServedModels* served, std::unique_ptr<ModelSource> source,
               ModelLoaderOptions options);
  ModelControl(const ModelControl&) = delete;
  ModelControl& operator=(const ModelControl&) = delete;
  ~ModelControl();  // Calls Stop(). Does not wait for hung loads.
  // Calls ModelLoader::Start() on the calling thread. REQUIRES: called first, once.
  Status Start();

  // See ModelLoader. kResourceExhausted: too many requests are queued; kUnavailable: stopped.
  void Refresh(Done done);
  void Load(const std::string& model, int64_t version, Swap swap, Done done,
            Abandoned abandoned = Never);
  void Unload(const std::string& model, int64_t version, Done done, Abandoned abandoned = Never);
  Result<std::vector<ServedVersion>> Index() const { return loader_.Index(); }

  // See ModelLoader.
  size_t hung_loads() const { return loader_.hung_loads(); }

  // Abandons the current load, refuses queued requests, releases the loaded versions, and returns
  // within about a second. May be called more than once, but not from a Done.
  void Stop();

 private:
  using Action = std::function<Status(ModelLoader*, double* unserved_seconds)>;
  struct Order {
    Action action;
    Done done;
    Abandoned abandoned;
  };

  void Give(Order order);
  void Run();

  ModelLoader loader_;  // Used by the thread only, except for its thread-safe methods.

  Mutex mutex_;
  CondVar changed_;  // Signalled when the fields below change.
  std::deque<Order> orders_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::once_flag joined_;
  std::thread thread_;  // Started by Start().
};

}  // namespace embershard
