#include "engine/model_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace embershard {
namespace {

// How long versions that gave way may take over their last requests.
constexpr std::chrono::seconds kGiveWayMax{60};

// How often a wait looks whether the loader is to stop.
constexpr std::chrono::milliseconds kLookEvery{100};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// For example "model 'ranker' version 3".
std::string VersionText(const std::string& model, int64_t version) {
  return "model '" + model + "' version " + std::to_string(version);
}

}  // namespace

ModelLoader::ModelLoader(ServedModels* served, std::shared_ptr<ModelSource> source,
                         ModelLoaderOptions options)
    : served_(served),
      source_(std::move(source)),
      options_(std::move(options)),
      reads_(options_.load, /*hung_max=*/1),
      loads_(options_.load, /*hung_max=*/2),
      memory_(options_.memory_budget) {}

void ModelLoader::Stop() {
  stopping_ = true;
  reads_.Stop();
  loads_.Stop();
}

Status ModelLoader::Start() {
  ASSIGN_OR_RETURN(const RepositoryModels models, ListModels());
  for (const std::string& model : options_.models) {
    if (!models.contains(model)) {
      return NotFound("model '", model, "' is not in the repository");
    }
  }
  for (const auto& [model, there] : models) {
    const std::vector<std::string>& wanted = options_.models;
    if (!wanted.empty() && std::ranges::find(wanted, model) == wanted.end()) {
      unloaded_.insert(model);
      continue;
    }
    const Status status = Align(model, there, /*gently=*/false);
    if (!status.ok() && !held_.contains(model)) return status;
  }
  if (held_.empty()) return NotFound("no model is in the repository");
  return {};
}

Status ModelLoader::Refresh() {
  const Result<RepositoryModels> models = ListModels();
  if (!models.ok()) return Failed("", 0, models.status());
  Status first;
  for (const auto& [model, there] : *models) {
    if (unloaded_.contains(model)) continue;
    if (!options_.models.empty() && !held_.contains(model) &&
        std::ranges::find(options_.models, model) == options_.models.end()) {
      continue;
    }
    const Status status = Align(model, there, /*gently=*/true);
    if (first.ok()) first = status;
  }
  return first;
}

Status ModelLoader::Load(const std::string& model, int64_t version, Swap swap,
                         double* unserved_seconds) {
  const Result<RepositoryModels> models = ListModels();
  if (!models.ok()) return Failed(model, version, models.status());
  const auto found = models->find(model);
  if (found == models->end()) {
    return Failed(model, version, NotFound("model '", model, "' is not in the repository"));
  }
  if (version != 0) {
    if (std::ranges::find(found->second, version) == found->second.end()) {
      const std::string words = VersionText(model, version) + " is not in the repository";
      return Failed(model, version, NotFound(words));
    }
    also_[model].insert(version);
  }
  DropWithdrawn(model);
  if (version == 0) {
    withdrawn_.erase(model);
  } else {
    withdrawn_[model].erase(version);
  }
  Status status = swap == Swap::kReplace && held_.contains(model)
                      ? Replace(model, found->second, unserved_seconds)
                      : Align(model, found->second, /*gently=*/true);
  const auto held = held_.find(model);
  if (version != 0 && (held == held_.end() || !held->second.contains(version))) {
    also_[model].erase(version);
  }
  if (held != held_.end()) unloaded_.erase(model);
  return status;
}

Status ModelLoader::Unload(const std::string& model, int64_t version) {
  const std::optional<ServedModel> served = served_->Model(model);
  if (!served || (version != 0 && !served->versions.contains(version))) {
    const std::string what = version == 0 ? "model '" + model + "'" : VersionText(model, version);
    return NotFound(what, " is not served here");
  }
  if (version == 0) {
    served_->Withdraw(model);
    LetGo(model, {}, &held_[model]);
    held_.erase(model);
    serving_.erase(model);
    also_.erase(model);
    unloaded_.insert(model);
  } else {
    const bool labelled = std::ranges::any_of(
        served->labels, [version](const auto& label) { return label.second == version; });
    if (labelled || version == served->default_version) {
      return {StatusCode::kFailedPrecondition,
              VersionText(model, version) + (labelled ? " has a label" : " is the default") +
                  ": give that to another version first, or unload the model"};
    }
    also_[model].erase(version);
    ServedModel changed = *served;
    changed.versions.erase(version);
    served_->Serve(std::move(changed));
    Versions& held = held_[model];
    std::set<int64_t> kept;
    for (const auto& [number, each] : held) {
      if (number != version) kept.insert(number);
    }
    LetGo(model, kept, &held);
  }
  return {};
}

Result<VersionChoice> ModelLoader::Choose(const std::string& model,
                                          const std::vector<int64_t>& there) {
  ASSIGN_OR_RETURN(const Labels labels,
                   reads_.Run<Labels>({.name = "the labels of model '" + model + "'"},
                                      [source = source_, model](const LoadContext&) {
                                        return source->ReadLabels(model);
                                      }));
  const auto found = also_.find(model);
  const std::set<int64_t> also = found != also_.end() ? found->second : std::set<int64_t>();
  Result<VersionChoice> choice = ChooseVersions(model, options_.rule, there, labels, also);
  if (choice.ok()) return choice;
  // A version is published before its label: the list may be older than the labels.
  const Result<RepositoryModels> models = ListModels();
  if (!models.ok() || !models->contains(model)) return choice;
  return ChooseVersions(model, options_.rule, models->at(model), labels, also);
}

Status ModelLoader::Align(const std::string& model, const std::vector<int64_t>& there,
                          bool gently) {
  const Result<VersionChoice> choice = Choose(model, there);
  if (!choice.ok()) return Failed(model, 0, choice.status());
  DropWithdrawn(model);
  const auto held = held_.find(model);
  Versions versions = held != held_.end() ? held->second : Versions();
  Status status = LoadMissing(model, *choice, gently, &versions);
  Publish(model, *choice, std::move(versions));
  const std::optional<ServedModel> now = served_->Model(model);
  if (status.ok() || !now || !now->versions.contains(now->default_version)) return status;
  return {status.code(),
          status.message() + "; " + VersionText(model, now->default_version) + " serves on",
          status.reason()};
}

Status ModelLoader::Replace(const std::string& model, const std::vector<int64_t>& there,
                            double* unserved_seconds) {
  const Result<VersionChoice> choice = Choose(model, there);
  if (!choice.ok()) return Failed(model, 0, choice.status());
  const int64_t default_before = [&] {
    const std::optional<ServedModel> served = served_->Model(model);  // Holds engines.
    return served && served->versions.contains(served->default_version) ? served->default_version
                                                                        : 0;
  }();
  const Clock::time_point start = Clock::now();
  GiveWay(model, choice->versions);
  Versions versions = held_[model];
  Status status = LoadMissing(model, *choice, /*gently=*/false, &versions);
  VersionChoice found = *choice;
  if (!versions.contains(found.default_version) && default_before != 0) {
    // What was served comes back, if it can.
    found.default_version = default_before;
    if (!versions.contains(default_before)) {
      Result<LoadedVersion> old = LoadOne(model, default_before, /*gently=*/false);
      if (old.ok()) versions.emplace(default_before, std::move(*old));
    }
  }
  Publish(model, found, std::move(versions));
  *unserved_seconds = SecondsSince(start);
  options_.report({.what = "replaced",
                   .model = model,
                   .version = found.default_version,
                   .seconds = *unserved_seconds,
                   .message = status.message()});
  return status;
}

Status ModelLoader::LoadMissing(const std::string& model, const VersionChoice& choice, bool gently,
                                Versions* versions) {
  Status first;
  for (const int64_t version : choice.versions) {
    if (versions->contains(version)) continue;
    if (withdrawn_[model].contains(version)) {
      if (first.ok()) first = VersionWithdrawn();
      continue;
    }
    Result<LoadedVersion> loaded = LoadOne(model, version, gently);
    if (loaded.ok()) {
      versions->emplace(version, std::move(*loaded));
    } else if (first.ok()) {
      first = loaded.status();
    }
  }
  return first;
}

Result<LoadedVersion> ModelLoader::LoadOne(const std::string& model, int64_t version, bool gently) {
  const Clock::time_point start = Clock::now();
  SetState(model, version, VersionState::kLoading, "");
  Result<LoadedVersion> loaded = StartEngine(model, version, gently);
  const Status& status = loaded.status();
  LoadEvent event = {.what = status.ok() ? "loaded" : "load_failed",
                     .model = model,
                     .version = version,
                     .seconds = SecondsSince(start),
                     .message = status.message()};
  SetState(model, version, status.ok() ? VersionState::kReady : VersionState::kFailed,
           status.message());
  options_.report(event);
  if (status.ok()) {
    const ProgramReport& program = loaded->engine->program();
    if (program.compared) {
      event.what = "program";
      event.seconds = 0;
      event.message = program.target + ": " + program.why;
      options_.report(event);
    }
    return loaded;
  }
  return Status(status.code(), VersionText(model, version) + ": " + status.message(),
                status.reason());
}

Result<LoadedVersion> ModelLoader::StartEngine(const std::string& model, int64_t version,
                                               bool gently) {
  const LoadTask task = {.name = VersionText(model, version),
                         .in_background = gently,
                         .bytes_per_second = options_.load_bytes_per_second};
  const Result<MemoryParts> parts = loads_.Run<MemoryParts>(
      task, [source = source_, model, version](const LoadContext& context) -> Result<MemoryParts> {
        MemoryParts found;
        RETURN_IF_ERROR(RunIn(context.background, [&]() -> Status {
          ASSIGN_OR_RETURN(found, source->Memory(model, version));
          return {};
        }));
        return found;
      });
  if (!parts.ok()) return parts.status();
  ASSIGN_OR_RETURN(const MemoryBudget::Claim claim, ClaimMemory(*parts));
  using Started = Result<std::unique_ptr<Engine>>;
  Started engine = loads_.Run<std::unique_ptr<Engine>>(
      task,
      [source = source_, model, version, options = options_.engine,
       claim = claim](const LoadContext& context) -> Started {
        ASSIGN_OR_RETURN(std::unique_ptr<Model> opened, source->Load(model, version, context));
        return Engine::Start(std::move(opened), options, context);
      });
  if (engine.ok()) return LoadedVersion{served_->Own(std::move(*engine), claim), claim};
  memory_.SetHolder(claim, MemoryBudget::Holder::kGivenUp);  // Until its thread releases it.
  return engine.status();
}

Result<MemoryBudget::Claim> ModelLoader::ClaimMemory(const MemoryParts& parts) {
  const Clock::time_point deadline = Clock::now() + options_.drain_wait;
  Result<MemoryBudget::Claim> claim = memory_.Take(parts);
  while (!claim.ok() && memory_.is_draining() && !stopping_ && Clock::now() < deadline) {
    // While a load waits, engines that end free their memory at full speed.
    (void)served_->WaitForEnds(0, std::min(deadline, Clock::now() + kLookEvery));
    claim = memory_.Take(parts);
  }
  return claim;
}

void ModelLoader::Publish(const std::string& model, const VersionChoice& choice,
                          Versions versions) {
  const std::optional<ServedModel> before = served_->Model(model);
  ServedModel next = {.name = model, .versions = {}, .default_version = choice.default_version};
  if (!versions.contains(choice.default_version)) {
    next.default_version = before ? before->default_version : 0;
  }
  std::set<int64_t> kept = choice.versions;
  kept.insert(next.default_version);
  for (const auto& [label, version] : choice.labels) {
    int64_t labelled = versions.contains(version) ? version : 0;
    if (labelled == 0 && before) {
      const auto old = before->labels.find(label);
      if (old != before->labels.end()) labelled = old->second;
    }
    if (!versions.contains(labelled)) continue;
    next.labels.emplace(label, labelled);
    kept.insert(labelled);
  }
  const bool has_default = versions.contains(next.default_version);
  if (!has_default && !withdrawn_[model].contains(next.default_version)) {
    served_->Withdraw(model);
    LetGo(model, {}, &versions);
    held_.erase(model);
    serving_.erase(model);
    return;
  }
  for (const auto& [version, held] : versions) {
    if (kept.contains(version)) next.versions.emplace(version, held.engine);
  }
  const int64_t answers = next.default_version;
  served_->Serve(std::move(next));
  if (has_default && std::exchange(serving_[model], answers) != answers) {
    options_.report({.what = "serving", .model = model, .version = answers, .message = {}});
  }
  LetGo(model, kept, &versions);
  held_[model] = std::move(versions);
}

void ModelLoader::LetGo(const std::string& model, const std::set<int64_t>& kept,
                        Versions* versions) {
  std::erase_if(*versions, [&](const auto& held) {
    if (kept.contains(held.first)) return false;
    memory_.SetHolder(held.second.memory, MemoryBudget::Holder::kDraining);
    options_.report({.what = "unloaded", .model = model, .version = held.first, .message = {}});
    return true;
  });
}

Status ModelLoader::Failed(const std::string& model, int64_t version, Status status) const {
  options_.report(
      {.what = "load_failed", .model = model, .version = version, .message = status.message()});
  return status;
}

void ModelLoader::GiveWay(const std::string& model, const std::set<int64_t>& kept) {
  served_->Withdraw(model);
  LetGo(model, kept, &held_[model]);
  // Of one that takes longer nothing is gained by waiting on.
  WaitForEnds(HeldEngines(), Clock::now() + kGiveWayMax);
}

void ModelLoader::WaitForEnds(size_t most, Clock::time_point deadline) const {
  while (!stopping_ && Clock::now() < deadline) {
    if (served_->WaitForEnds(most, std::min(deadline, Clock::now() + kLookEvery))) return;
  }
}

void ModelLoader::DropWithdrawn(const std::string& model) {
  const auto all = served_->withdrawn();
  const auto withdrawn = all.find(model);
  const auto held = held_.find(model);
  if (withdrawn == all.end() || held == held_.end()) return;
  std::erase_if(held->second, [&](const auto& loaded) {
    if (!withdrawn->second.contains(loaded.first)) return false;
    memory_.SetHolder(loaded.second.memory, MemoryBudget::Holder::kDraining);
    withdrawn_[model].insert(loaded.first);
    SetState(model, loaded.first, VersionState::kFailed, VersionWithdrawn().message());
    (void)Failed(model, loaded.first, VersionWithdrawn());
    return true;
  });
}

size_t ModelLoader::HeldEngines() const {
  size_t engines = 0;
  for (const auto& [model, versions] : held_) engines += versions.size();
  return engines;
}

}  // namespace embershard
