#include "registry/model_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/request_completer.h"

namespace embershard {
namespace {

// Longest wait for unloaded versions to answer their last requests.
constexpr std::chrono::seconds kUnloadWaitMax{60};

constexpr std::chrono::milliseconds kUnloadPollPeriod{100};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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
  for (const auto& [model, versions] : held_) CompareWithDisk(model);
  return first;
}

Status ModelLoader::Load(const std::string& model, int64_t version, Swap swap,
                         double* unserved_seconds) {
  Status status = LoadNamed(model, version, swap, unserved_seconds);
  CompareWithDisk(model);
  return status;
}

Status ModelLoader::LoadNamed(const std::string& model, int64_t version, Swap swap,
                              double* unserved_seconds) {
  const Result<RepositoryModels> models = ListModels();
  if (!models.ok()) return Failed(model, version, models.status());
  const auto entry = models->find(model);
  if (entry == models->end()) return Missing(model, 0);
  const ListedVersions& there = entry->second;
  if (version != 0) {
    if (!there.ok()) return Failed(model, version, there.status());
    if (std::ranges::find(*there, version) == there->end()) return Missing(model, version);
    also_[model].insert(version);
  }
  DropWithdrawn(model);
  if (version == 0) {
    withdrawn_.erase(model);
  } else {
    withdrawn_[model].erase(version);
  }
  Status status = swap == Swap::kReplace && held_.contains(model)
                      ? Replace(model, version, there, unserved_seconds)
                      : Align(model, there, /*gently=*/true);
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
    UnloadExcept(model, {}, &held_[model]);
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
    for (const auto& [number, engine] : held) {
      if (number != version) kept.insert(number);
    }
    UnloadExcept(model, kept, &held);
  }
  return {};
}

Result<VersionChoice> ModelLoader::Choose(const std::string& model, const ListedVersions& there) {
  if (!there.ok()) return there.status();
  const Result<Labels> read = reads_.Run<Labels>(
      {.name = "the labels of model '" + model + "'"},
      [source = source_, model](const LoadContext&) { return source->ReadLabels(model); });
  if (!read.ok()) {
    const Status& status = read.status();
    return Status(status.code(), "model '" + model + "': " + status.message(), status.reason());
  }
  const Labels& labels = *read;
  const auto entry = also_.find(model);
  const std::set<int64_t> also = entry != also_.end() ? entry->second : std::set<int64_t>();
  Result<VersionChoice> choice = ChooseVersions(model, options_.rule, *there, labels, also);
  if (choice.ok()) return choice;
  // Read after the labels, because versions are published before their labels.
  const Result<RepositoryModels> models = ListModels();
  if (!models.ok() || !models->contains(model)) return choice;
  const ListedVersions& now = models->at(model);
  return now.ok() ? ChooseVersions(model, options_.rule, *now, labels, also) : now.status();
}

Status ModelLoader::Align(const std::string& model, const ListedVersions& there, bool gently) {
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

Status ModelLoader::Replace(const std::string& model, int64_t version, const ListedVersions& there,
                            double* unserved_seconds) {
  const Result<VersionChoice> choice = Choose(model, there);
  if (!choice.ok()) return Failed(model, 0, choice.status());
  std::set<int64_t> kept = choice->versions;
  for (const int64_t other : CompareWithDisk(model)) kept.erase(other);
  const Versions& before = held_[model];
  if (std::ranges::all_of(before, [&](const auto& held) { return kept.contains(held.first); })) {
    const bool nothing_to_unload = version != 0 && !before.contains(version) &&
                                   version != choice->default_version &&
                                   before.contains(choice->default_version);
    if (nothing_to_unload) return NothingUnloaded(model, version, *choice);
    return Align(model, there, /*gently=*/true);
  }
  const int64_t default_before = [&] {
    const std::optional<ServedModel> served = served_->Model(model);  // Holds engines.
    return served && served->versions.contains(served->default_version) ? served->default_version
                                                                        : 0;
  }();
  const Clock::time_point start = Clock::now();
  UnloadAndWait(model, kept);
  Versions versions = held_[model];
  Status status = LoadMissing(model, *choice, /*gently=*/false, &versions);
  VersionChoice published = *choice;
  if (!versions.contains(published.default_version) && default_before != 0) {
    // Load the earlier default again, unless that is the version that just failed.
    published.default_version = default_before;
    if (!versions.contains(default_before) && !choice->versions.contains(default_before)) {
      Result<LoadedVersion> old = LoadOne(model, default_before, /*gently=*/false);
      if (old.ok()) versions.emplace(default_before, std::move(*old));
    }
  }
  Publish(model, published, std::move(versions));
  *unserved_seconds = SecondsSince(start);
  options_.report({.what = "replaced",
                   .model = model,
                   .version = published.default_version,
                   .seconds = *unserved_seconds,
                   .message = status.message()});
  return status;
}

Status ModelLoader::NothingUnloaded(const std::string& model, int64_t version,
                                    const VersionChoice& choice) const {
  const char* const why = options_.rule.number != 0 ? "pinned by --version" : "the default";
  return {StatusCode::kFailedPrecondition,
          VersionText(model, version) +
              ": replace: expected a version to unload for it, got version " +
              std::to_string(choice.default_version) + ", which is " + why +
              " and is not unloaded; load it without replace to serve it beside"};
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
    if (program.is_substitute) {
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
  ASSIGN_OR_RETURN(
      const VersionOutline outline,
      loads_.Run<VersionOutline>(
          task,
          [source = source_, model, version](const LoadContext& context) -> Result<VersionOutline> {
            VersionOutline read;
            RETURN_IF_ERROR(RunIn(context.background, [&]() -> Status {
              ASSIGN_OR_RETURN(read, source->ReadOutline(model, version));
              return {};
            }));
            return read;
          }));
  ASSIGN_OR_RETURN(const MemoryBudget::Claim claim, ClaimMemory(outline.memory));
  using Started = std::unique_ptr<Engine>;
  Result<Started> started =
      loads_.Run<Started>(task,
                          [source = source_, model, version, outline, options = options_.engine,
                           claim = claim](const LoadContext& context) -> Result<Started> {
                            ASSIGN_OR_RETURN(std::unique_ptr<Model> opened,
                                             source->Load(model, version, outline, context));
                            return Engine::Start(std::move(opened), options, context);
                          });
  if (started.ok()) {
    return LoadedVersion{served_->Own(std::move(*started), claim), claim, outline.digest};
  }
  memory_.SetHolder(claim, MemoryBudget::Holder::kGivenUp);  // Until its thread releases it.
  return started.status();
}

Result<MemoryBudget::Claim> ModelLoader::ClaimMemory(const MemoryParts& parts) {
  const Clock::time_point deadline = Clock::now() + options_.drain_wait;
  Result<MemoryBudget::Claim> claim = memory_.Take(parts);
  while (!claim.ok() && memory_.is_draining() && !stopping_ && Clock::now() < deadline) {
    // While a load waits, engines that end free their memory at full speed.
    (void)served_->WaitForEnds(0, std::min(deadline, Clock::now() + kUnloadPollPeriod));
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
    UnloadExcept(model, {}, &versions);
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
  UnloadExcept(model, kept, &versions);
  held_[model] = std::move(versions);
}

void ModelLoader::UnloadExcept(const std::string& model, const std::set<int64_t>& kept,
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

Status ModelLoader::Missing(const std::string& model, int64_t version) const {
  const std::string what = version == 0 ? "model '" + model + "'" : VersionText(model, version);
  Status missing = NotFound(what, " is not in the repository");
  const auto held = held_.find(model);
  const bool known = held != held_.end() && (version == 0 || held->second.contains(version));
  return known ? Failed(model, version, std::move(missing)) : missing;
}

void ModelLoader::UnloadAndWait(const std::string& model, const std::set<int64_t>& kept) {
  served_->Withdraw(model);
  UnloadExcept(model, kept, &held_[model]);
  WaitForEnds(HeldEngines(), Clock::now() + kUnloadWaitMax);
}

void ModelLoader::WaitForEnds(size_t most, Clock::time_point deadline) const {
  while (!stopping_ && Clock::now() < deadline) {
    if (served_->WaitForEnds(most, std::min(deadline, Clock::now() + kUnloadPollPeriod))) return;
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
