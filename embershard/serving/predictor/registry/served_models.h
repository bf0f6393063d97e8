// The served models, with their versions and labels.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/background.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "engine/engine.h"
#include "registry/deferred_destruction.h"
#include "registry/shadow.h"
#include "registry/traffic_split.h"
#include "telemetry/telemetry.h"

namespace embershard {

struct ServedModel {
  std::string name;
  std::map<int64_t, std::shared_ptr<Engine>> versions;  // By number.
  // Answers requests without a version. If it is not in `versions`, it was withdrawn as failed, and
  // no stable version is left.
  int64_t default_version = 0;
  std::map<std::string, int64_t, std::less<>> labels{};  // To numbers of `versions`.
  uint64_t default_schema = 0;  // Fingerprint of the default version's schema; set by ServedModels.
};

enum class VersionState { kUnloaded, kLoading, kReady, kFailed };

struct ServedVersion {
  std::string model;
  int64_t version = 0;
  std::vector<std::string> labels;
  bool is_default = false;
  VersionState state = VersionState::kReady;
  std::string reason;  // Why it is not ready, or how a ready version differs from the repository.
  ProgramReport program;           // Empty if it is not ready.
  std::shared_ptr<Engine> engine;  // Null if it is not ready.
};

// Thread-safe. Changes are atomic and wait for each other; lookups wait only while a pointer is
// copied. Engines that are no longer served are destroyed on a separate thread, after the last
// pointer to them.
class ServedModels {
 public:
  // `slow_request`: calls that take at least this long are logged; 0: none. `traffic`: see Route().
  explicit ServedModels(Clock::duration slow_request = {}, const ShadowOptions& shadow = {},
                        TrafficOptions traffic = {});
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  // Waits until all engines are destroyed. REQUIRES: other owners release theirs.
  ~ServedModels();

  // Serves only this engine, without a label.
  static std::shared_ptr<ServedModels> Of(std::unique_ptr<Engine> engine,
                                          Clock::duration slow_request = {});

  // `claim`: see DeferredDestruction::Own(). If a batch of the engine does not end, its version is
  // withdrawn as failed. If it was the default, the next lower version that is neither canary nor
  // shadow becomes the default; without one, requests for the default get kUnavailable. If the pool
  // cannot replace further workers, the watcher is told that nothing is served.
  std::shared_ptr<Engine> Own(std::unique_ptr<Engine> engine,
                              std::shared_ptr<const void> claim = nullptr);

  // Versions that were withdrawn as failed and not served again, by model.
  std::map<std::string, std::set<int64_t>> withdrawn() const;

  // Replaces a model of the same name, atomically.
  void Serve(ServedModel model);
  // Has no effect if the model is not served.
  void Withdraw(const std::string& model);

  // Finds the engine that answers a request. An empty model means the only one. Version 0 without a
  // label means the default version; kUnavailable if that was withdrawn. kNotFound lists what is
  // served; kInvalidArgument if both version and label are set. The caller keeps the pointer until
  // the request is answered.
  Result<std::shared_ptr<Engine>> Find(std::string_view model, int64_t version,
                                       std::string_view label) const;

  // Like Find(), but sends a share of the requests without version and label to the version with
  // TrafficOptions' label, by `traffic_key` (see TrafficSplit). If no version has the label, or if
  // its inputs or outputs differ from the default's, all such requests go to the default.
  Result<std::shared_ptr<Engine>> Route(std::string_view model, int64_t version,
                                        std::string_view label, std::string_view traffic_key) const;

  ShadowVersion FindShadow(std::string_view model) const;

  std::optional<ServedModel> Model(std::string_view name) const;

  // All served versions, by model and version.
  std::vector<ServedVersion> List() const;

  // Engines in the order of List().
  std::vector<std::shared_ptr<Engine>> Engines() const;

  // Waits until at most `most` engines exist, including those that answer their last requests.
  // Returns false after `deadline`. Destroyed engines have freed their memory.
  bool WaitForEnds(size_t most, Clock::time_point deadline) {
    return destruction_.WaitForEnds(most, deadline);
  }

  // The function is called for every served model, and then whenever a model becomes served or
  // stops being served. An empty `model` means the whole server. Calls come one at a time, in the
  // order of the changes, without a lock; the calling thread also reports changes that other
  // threads make meanwhile. Null: no calls after this returns. REQUIRES: not called by a watcher.
  using Watcher = std::function<void(const std::string& model, bool served)>;
  void Watch(Watcher changed);

  void Stop();

  Shadow& shadow() { return shadow_; }

  // Counts calls that found no version, slow calls of all versions, and open streams.
  Telemetry& telemetry() { return telemetry_; }

  uint64_t answered_by_ended() const { return destruction_.answered(); }

  // The pool cannot replace further workers, or a device is lost: the process should be restarted.
  bool exhausted() const {
    const MutexLock lock(changing_);
    return exhausted_;
  }

  bool device_lost() const {
    const MutexLock lock(changing_);
    return device_lost_;
  }

 private:
  using Models = std::map<std::string, ServedModel, std::less<>>;

  std::shared_ptr<const Models> Now() const;
  static Result<const ServedModel*> FindModel(const Models& models, std::string_view model);
  void Exchange(std::shared_ptr<const Models> models) REQUIRES(changing_);
  // Reports changes, unless another thread is doing so. Releases the mutex during each call.
  void Tell() REQUIRES(changing_);
  void WithdrawFailed(const Engine* engine, Withdrawal why);
  // Callbacks of engines, disabled when this object is destroyed.
  struct Hooks;

  // First, because engines are destroyed by them.
  Background background_;
  DeferredDestruction destruction_;
  Telemetry telemetry_;
  const TrafficSplit traffic_;

  struct Change {
    std::string model;
    bool served;
  };

  mutable Mutex changing_;                                        // Held while a model is changed.
  std::shared_ptr<const Watcher> watcher_ GUARDED_BY(changing_);  // May be null.
  std::deque<Change> changes_ GUARDED_BY(changing_);  // Not yet reported to the watcher.
  bool telling_ GUARDED_BY(changing_) = false;
  CondVar told_;  // Signalled when `telling_` ends.

  std::map<std::string, std::set<int64_t>> withdrawn_ GUARDED_BY(changing_);
  bool exhausted_ GUARDED_BY(changing_) = false;  // The pool cannot replace further workers.
  bool device_lost_ GUARDED_BY(changing_) = false;
  const std::shared_ptr<Hooks> hooks_;

  mutable Mutex copying_;
  std::shared_ptr<const Models> models_ GUARDED_BY(copying_);  // Never null.

  Shadow shadow_;  // Last, because its thread reads the fields above.
};

}  // namespace embershard
