// What is served now: models, their versions and labels.

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

// One model as requests find it.
struct ServedModel {
  std::string name;
  std::map<int64_t, std::shared_ptr<Engine>> versions;  // By number.
  // Of requests without a version. Not in `versions`: it was withdrawn as failed, and no stable
  // version is left.
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
  std::string reason;  // Why, where it is not ready; how a ready one differs from the repository.
  ProgramReport program;           // Empty where it is not ready.
  std::shared_ptr<Engine> engine;  // Null where it is not ready.
};

// Thread-safe. Lookups wait for nothing but the copy of a pointer; changes wait for each other, and
// a reader finds a model as it was before one or as it is behind it. Its engines end on a
// thread of its own, once they are served no more and the last pointer to them has gone.
class ServedModels {
 public:
  // `slow_request`: from here on a call is slow. 0: none is. `shadow`: see Shadow. `traffic`: see
  // Route().
  explicit ServedModels(Clock::duration slow_request = {}, const ShadowOptions& shadow = {},
                        TrafficOptions traffic = {});
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  // Waits until every engine has ended. REQUIRES: other owners release theirs meanwhile.
  ~ServedModels();

  // One that serves the engine alone, without a label.
  static std::shared_ptr<ServedModels> Of(std::unique_ptr<Engine> engine,
                                          Clock::duration slow_request = {});

  // The engine, for ServedModel::versions. `claim`: as in DeferredDestruction::Own(). If a batch of
  // it does not end, its version is withdrawn as failed. The next lower version that is neither
  // canary nor shadow becomes the default in its place; without one, requests for the default get
  // kUnavailable. If the pool replaces no more workers, the watcher is told that nothing is served.
  std::shared_ptr<Engine> Own(std::unique_ptr<Engine> engine,
                              std::shared_ptr<const void> claim = nullptr);

  // Versions that were withdrawn as failed and have not been served again, by model.
  std::map<std::string, std::set<int64_t>> withdrawn() const;

  // Puts `model` in the place of the one of its name, if there is one, in one moment.
  void Serve(ServedModel model);
  // In one moment, too. No effect where no such model is served.
  void Withdraw(const std::string& model);

  // What answers a request. Empty model: the only one there. Version 0 and no label: the model's
  // default, kUnavailable if that was withdrawn. kNotFound, with what is served; kInvalidArgument
  // where version and label are given.
  // The caller keeps it until it has been answered.
  Result<std::shared_ptr<Engine>> Find(std::string_view model, int64_t version,
                                       std::string_view label) const;

  // What answers a request for predictions: as Find(), but a share of the requests that name
  // neither a version nor a label goes to the labelled version of TrafficOptions, by `traffic_key`
  // (see TrafficSplit). That version must have the inputs and outputs of the default, for which
  // such requests are made; else, and if no version has the label, all go to the default.
  Result<std::shared_ptr<Engine>> Route(std::string_view model, int64_t version,
                                        std::string_view label, std::string_view traffic_key) const;

  // What is labelled shadow of the model of that name.
  ShadowVersion FindShadow(std::string_view model) const;

  // The model of that name, if it is served.
  std::optional<ServedModel> Model(std::string_view name) const;

  // All that is served, models and versions ascending.
  std::vector<ServedVersion> List() const;

  // The engines of all that, in the same order.
  std::vector<std::shared_ptr<Engine>> Engines() const;

  // Waits until no more engines live than `most`, those included that answer their last requests,
  // or until `deadline`; whether it is so. An engine that ends gives its memory back.
  bool WaitForEnds(size_t most, Clock::time_point deadline) {
    return destruction_.WaitForEnds(most, deadline);
  }

  // `changed` is told, one call at a time and without a lock, of every model that is served now,
  // and of each that is served from some moment on, or is not any more. Empty `model`: all of the
  // server. Null: nobody is, as soon as this returns. Changes are told in their order, one that
  // comes while another thread tells by that thread. REQUIRES: not called by a watcher.
  using Watcher = std::function<void(const std::string& model, bool served)>;
  void Watch(Watcher changed);

  // Stops every engine: see Engine::Stop().
  void Stop();

  // Hands requests to engines. See Shadow.
  Shadow& shadow() { return shadow_; }

  // Calls that found no version, slow calls of all versions, open streams.
  Telemetry& telemetry() { return telemetry_; }

  // Calls that were answered well by versions that have ended.
  uint64_t answered_by_ended() const { return destruction_.answered(); }

  // True if the pool replaces no more workers, or a device is lost: the process should be started
  // anew.
  bool exhausted() const {
    const MutexLock lock(changing_);
    return exhausted_;
  }

  // True if a device of a served version is lost.
  bool device_lost() const {
    const MutexLock lock(changing_);
    return device_lost_;
  }

 private:
  using Models = std::map<std::string, ServedModel, std::less<>>;

  std::shared_ptr<const Models> Now() const;
  static Result<const ServedModel*> FindModel(const Models& models, std::string_view model);
  void Exchange(std::shared_ptr<const Models> models) REQUIRES(changing_);
  // Tells the watcher all that is to be told, unless another thread does. Gives the mutex back for
  // each call.
  void Tell() REQUIRES(changing_);
  void WithdrawFailed(const Engine* engine, Withdrawal why);
  // What engines call back, while this lives.
  struct Hooks;

  Background background_;            // First: engines end there,
  DeferredDestruction destruction_;  // when this says so.
  Telemetry telemetry_;
  const TrafficSplit traffic_;

  struct Change {
    std::string model;
    bool served;
  };

  mutable Mutex changing_;                                        // Held while a model is changed.
  std::shared_ptr<const Watcher> watcher_ GUARDED_BY(changing_);  // May be null.
  std::deque<Change> changes_ GUARDED_BY(changing_);  // That the watcher is to be told of.
  bool telling_ GUARDED_BY(changing_) = false;
  CondVar told_;  // Signalled when `telling_` ends.

  // No atomic pointer: that of libstdc++ 12 is a race to ThreadSanitizer.
  std::map<std::string, std::set<int64_t>> withdrawn_ GUARDED_BY(changing_);
  bool exhausted_ GUARDED_BY(changing_) = false;  // No worker is replaced any more.
  bool device_lost_ GUARDED_BY(changing_) = false;
  const std::shared_ptr<Hooks> hooks_;

  mutable Mutex copying_;
  std::shared_ptr<const Models> models_ GUARDED_BY(copying_);  // Never null.

  Shadow shadow_;  // Last: its thread reads the fields above.
};

}  // namespace embershard
