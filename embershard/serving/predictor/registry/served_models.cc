#include "registry/served_models.h"

#include <algorithm>
#include <string>
#include <utility>

#include "package/labels.h"

namespace embershard {
namespace {

// Text such as "'a' version 3" or "'a' version 1, 2".
std::string VersionsText(const ServedModel& model) {
  if (model.versions.empty()) return "'" + model.name + "' without a version";
  std::string text = "'" + model.name + "' version ";
  const size_t begin = text.size();
  for (const auto& [version, engine] : model.versions) {
    text += (text.size() > begin ? ", " : "") + std::to_string(version);
  }
  return text;
}

template <class Models>
std::string ModelsText(const Models& models) {
  std::string text;
  for (const auto& [name, model] : models) text += (text.empty() ? "" : "; ") + VersionsText(model);
  return text;
}

std::string LabelsText(const ServedModel& model) {
  std::string text = "none";
  for (const auto& [label, version] : model.labels) text += ", '" + label + "'";
  return text + " or " + VersionsText(model);
}

Result<std::shared_ptr<Engine>> FindVersion(const ServedModel& model, int64_t version,
                                            std::string_view label) {
  if (version != 0 && !label.empty()) {
    return InvalidArgument("expected a version or a label, got version ", version, " and label '",
                           label, "'");
  }
  if (!label.empty()) {
    const auto labelled = model.labels.find(label);
    if (labelled == model.labels.end()) {
      return NotFound("label '", label, "' is not defined here, expected ", LabelsText(model));
    }
    version = labelled->second;
  }
  const auto entry = model.versions.find(version == 0 ? model.default_version : version);
  if (entry != model.versions.end()) return entry->second;
  if (version == 0) {
    return Status(StatusCode::kUnavailable,
                  "model '" + model.name + "': the default version " +
                      std::to_string(model.default_version) +
                      " was withdrawn as failed, and no stable version is left",
                  StatusReason::kWithdrawn);
  }
  return NotFound("version ", version, " is not served here, expected ", VersionsText(model));
}

// Null if no version gets a share of the default's requests.
std::shared_ptr<Engine> FindSplitVersion(const ServedModel& model, std::string_view label) {
  const auto labelled = model.labels.find(label);
  if (labelled == model.labels.end() || labelled->second == model.default_version) return nullptr;
  const auto entry = model.versions.find(labelled->second);
  if (entry == model.versions.end()) return nullptr;
  const bool same_schema = entry->second->manifest().schema.fingerprint == model.default_schema;
  return same_schema ? entry->second : nullptr;
}

void SetDefaultSchema(ServedModel* model) {
  const auto entry = model->versions.find(model->default_version);
  if (entry == model->versions.end()) return;
  model->default_schema = entry->second->manifest().schema.fingerprint;
}

// The next version below the default that is neither canary nor shadow; 0 if there is none.
int64_t PreviousStable(const ServedModel& model) {
  int64_t previous = 0;
  for (const auto& [version, engine] : model.versions) {
    const auto is_other = [version = version](const auto& label) {
      return label.second == version && label.first != kStableLabel;
    };
    const bool is_stable = std::ranges::none_of(model.labels, is_other);
    if (is_stable && version < model.default_version) previous = version;
  }
  return previous;
}

}  // namespace

struct ServedModels::Hooks {
  Mutex mutex;
  CondVar returned;  // Signalled when `calls` falls.
  ServedModels* served GUARDED_BY(mutex) = nullptr;
  int calls GUARDED_BY(mutex) = 0;  // Running calls.
};

ServedModels::ServedModels(Clock::duration slow_request, const ShadowOptions& shadow,
                           TrafficOptions traffic)
    : destruction_(&background_),
      telemetry_({.slow_request = slow_request}),
      traffic_(std::move(traffic)),
      hooks_(std::make_shared<Hooks>()),
      models_(std::make_shared<const Models>()),
      shadow_(this, shadow) {
  const MutexLock lock(hooks_->mutex);
  hooks_->served = this;
}

ServedModels::~ServedModels() {
  const MutexLock lock(hooks_->mutex);
  hooks_->served = nullptr;
  while (hooks_->calls > 0) hooks_->returned.Wait(hooks_->mutex);
}

std::shared_ptr<ServedModels> ServedModels::Of(std::unique_ptr<Engine> engine,
                                               Clock::duration slow_request) {
  auto served = std::make_shared<ServedModels>(slow_request);
  const std::string name = engine->manifest().model;
  const int64_t version = engine->manifest().version;
  served->Serve({.name = name,
                 .versions = {{version, served->Own(std::move(engine))}},
                 .default_version = version});
  return served;
}

std::shared_ptr<Engine> ServedModels::Own(std::unique_ptr<Engine> engine,
                                          std::shared_ptr<const void> claim) {
  engine->OnWithdrawn([hooks = hooks_, withdrawn = engine.get()](Withdrawal why) {
    MutexLock lock(hooks->mutex);
    ServedModels* const served = hooks->served;
    if (served == nullptr) return;
    ++hooks->calls;
    lock.Unlock();
    served->WithdrawFailed(withdrawn, why);
    lock.Lock();
    --hooks->calls;
    hooks->returned.NotifyAll();
  });
  return destruction_.Own(std::move(engine), std::move(claim));
}

void ServedModels::Serve(ServedModel model) {
  const MutexLock lock(changing_);
  auto models = std::make_shared<Models>(*Now());
  const std::string name = model.name;
  for (const auto& [version, engine] : model.versions) withdrawn_[name].erase(version);
  SetDefaultSchema(&model);
  const bool has_default = model.versions.contains(model.default_version);
  models->insert_or_assign(name, std::move(model));
  Exchange(std::move(models));
  changes_.push_back({name, has_default && !exhausted_});
  Tell();
}

void ServedModels::WithdrawFailed(const Engine* engine, Withdrawal why) {
  const std::string name = engine->manifest().model;
  const int64_t version = engine->manifest().version;
  const MutexLock lock(changing_);
  auto models = std::make_shared<Models>(*Now());
  const auto entry = models->find(name);
  if (entry != models->end()) {
    ServedModel& model = entry->second;
    const auto held = model.versions.find(version);
    if (held != model.versions.end() && held->second.get() == engine) {
      withdrawn_[name].insert(version);
      model.versions.erase(held);
      std::erase_if(model.labels, [version](const auto& label) { return label.second == version; });
    }
    if (!model.versions.contains(model.default_version)) {
      const int64_t previous = PreviousStable(model);
      if (previous != 0) model.default_version = previous;
      if (previous == 0) changes_.push_back({name, false});
      SetDefaultSchema(&model);
    }
  }
  device_lost_ = device_lost_ || why == Withdrawal::kDeviceLost;
  exhausted_ = exhausted_ || why != Withdrawal::kBatchDoesNotEnd;
  if (exhausted_) changes_.push_back({"", false});
  Exchange(std::move(models));
  Tell();
}

std::map<std::string, std::set<int64_t>> ServedModels::withdrawn() const {
  const MutexLock lock(changing_);
  return withdrawn_;
}

void ServedModels::Withdraw(const std::string& model) {
  const MutexLock lock(changing_);
  auto models = std::make_shared<Models>(*Now());
  const bool was_served = models->erase(model) > 0;
  Exchange(std::move(models));
  if (was_served) changes_.push_back({model, false});
  Tell();
}

void ServedModels::Watch(Watcher changed) {
  const MutexLock lock(changing_);
  while (telling_) told_.Wait(changing_);  // The earlier watcher may be running.
  watcher_ = changed ? std::make_shared<const Watcher>(std::move(changed)) : nullptr;
  for (const auto& [name, model] : *Now()) {
    changes_.push_back({name, model.versions.contains(model.default_version) && !exhausted_});
  }
  Tell();
}

void ServedModels::Tell() {
  if (telling_) return;  // The other thread reports the new changes, too.
  telling_ = true;
  while (!changes_.empty()) {
    const Change change = std::move(changes_.front());
    changes_.pop_front();
    const std::shared_ptr<const Watcher> watcher = watcher_;
    if (watcher == nullptr) continue;
    changing_.Unlock();
    (*watcher)(change.model, change.served);
    changing_.Lock();
  }
  telling_ = false;
  told_.NotifyAll();
}

std::shared_ptr<const ServedModels::Models> ServedModels::Now() const {
  const MutexLock lock(copying_);
  return models_;
}

void ServedModels::Exchange(std::shared_ptr<const Models> models) {
  {
    const MutexLock lock(copying_);
    models_.swap(models);
  }
  // The one before ends here, without the lock.
}

Result<std::shared_ptr<Engine>> ServedModels::Find(std::string_view model, int64_t version,
                                                   std::string_view label) const {
  const std::shared_ptr<const Models> models = Now();
  const Result<const ServedModel*> served_model = FindModel(*models, model);
  return served_model.ok() ? FindVersion(**served_model, version, label) : served_model.status();
}

Result<std::shared_ptr<Engine>> ServedModels::Route(std::string_view model, int64_t version,
                                                    std::string_view label,
                                                    std::string_view traffic_key) const {
  const std::shared_ptr<const Models> models = Now();
  ASSIGN_OR_RETURN(const ServedModel* served_model, FindModel(*models, model));
  if (version == 0 && label.empty() && !traffic_.label().empty()) {
    std::shared_ptr<Engine> split = FindSplitVersion(*served_model, traffic_.label());
    if (split != nullptr && traffic_.Takes(served_model->name, traffic_key)) return split;
  }
  return FindVersion(*served_model, version, label);
}

Result<const ServedModel*> ServedModels::FindModel(const Models& models, std::string_view model) {
  if (models.empty()) return NotFound("no model is served here now");
  if (model.empty() && models.size() == 1) return &models.begin()->second;
  if (model.empty()) return NotFound("no model is named, expected one of ", ModelsText(models));
  const auto entry = models.find(model);
  if (entry != models.end()) return &entry->second;
  return NotFound("model '", model, "' is not served here, expected ", ModelsText(models));
}

ShadowVersion ServedModels::FindShadow(std::string_view model) const {
  const std::shared_ptr<const Models> models = Now();
  const auto entry = models->find(model);
  if (entry == models->end()) return {};
  const ServedModel& served = entry->second;
  const auto labelled = served.labels.find(kShadowLabel);
  if (labelled == served.labels.end()) return {};
  const int64_t version = labelled->second;
  const auto labels_of_it = std::ranges::count_if(
      served.labels, [version](const auto& label) { return label.second == version; });
  return {.engine = served.versions.at(version),
          .only_shadow = version != served.default_version && labels_of_it == 1};
}

std::optional<ServedModel> ServedModels::Model(std::string_view name) const {
  const std::shared_ptr<const Models> models = Now();
  const auto entry = models->find(name);
  if (entry == models->end()) return std::nullopt;
  return entry->second;
}

std::vector<ServedVersion> ServedModels::List() const {
  std::vector<ServedVersion> versions;
  const std::shared_ptr<const Models> models = Now();
  for (const auto& [name, model] : *models) {
    for (const auto& [version, engine] : model.versions) {
      versions.push_back({.model = name,
                          .version = version,
                          .labels = {},
                          .is_default = version == model.default_version,
                          .reason = {},
                          .program = engine->program(),
                          .engine = engine});
      for (const auto& [label, labelled] : model.labels) {
        if (labelled == version) versions.back().labels.push_back(label);
      }
    }
  }
  return versions;
}

std::vector<std::shared_ptr<Engine>> ServedModels::Engines() const {
  std::vector<std::shared_ptr<Engine>> engines;
  const std::shared_ptr<const Models> models = Now();
  for (const auto& [name, model] : *models) {
    for (const auto& [version, engine] : model.versions) engines.push_back(engine);
  }
  return engines;
}

void ServedModels::Stop() {
  for (const std::shared_ptr<Engine>& engine : Engines()) engine->Stop();
  telemetry_.slow_log().Close();
}

}  // namespace embershard
