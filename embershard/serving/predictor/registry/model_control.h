// Load and unload requests, while predictions are answered: their callers do not wait.

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

// A thread of its own carries out one order after the other. Thread-safe.
class ModelControl {
 public:
  // Orders that wait. One more is refused.
  static constexpr size_t kOrdersMax = 32;

  // Called once, on the control's thread, or before the order returns where it is refused. Must
  // neither throw nor wait.
  using Done = std::function<void(const LoadOutcome&)>;

  // Whether the caller cancelled the request. Asked once, on the control's thread, when its turn
  // comes; must neither throw nor wait. What nobody waits for any more is not begun (kAbandoned).
  using Abandoned = std::function<bool()>;
  static bool Never() { return false; }

  // Does not own `served`, which must outlive it.
  ModelControl(ServedModels* served, std::unique_ptr<ModelSource> source,
               ModelLoaderOptions options);
  ModelControl(const ModelControl&) = delete;
  ModelControl& operator=(const ModelControl&) = delete;
  ~ModelControl();  // Calls Stop(). Does not wait for loads that hang.

  // As ModelLoader::Start(), on the calling thread. REQUIRES: comes first, once.
  Status Start();

  // As in ModelLoader. kResourceExhausted: too many orders wait; kUnavailable: it has stopped.
  void Refresh(Done done);
  void Load(const std::string& model, int64_t version, Swap swap, Done done,
            Abandoned abandoned = Never);
  void Unload(const std::string& model, int64_t version, Done done, Abandoned abandoned = Never);
  Result<std::vector<ServedVersion>> Index() const { return loader_.Index(); }

  // As in ModelLoader.
  size_t hung_loads() const { return loader_.hung_loads(); }

  // Gives up what is being loaded, refuses queued requests, releases the loaded versions, returns
  // within about a second. Safe to call more than once, but not from a Done.
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

  ModelLoader loader_;  // But for what any thread may call, of the thread alone once it runs.

  Mutex mutex_;
  CondVar changed_;  // Signalled when the fields below change.
  std::deque<Order> orders_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::once_flag joined_;
  std::thread thread_;  // Begins in Start().
};

}  // namespace embershard
