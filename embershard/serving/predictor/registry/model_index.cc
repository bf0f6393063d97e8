#include <utility>

#include "engine/request_completer.h"
#include "registry/model_loader.h"

namespace embershard {

Result<RepositoryModels> ModelLoader::ListModels() {
  Result<RepositoryModels> models = reads_.Run<RepositoryModels>(
      {.name = "the repository"},
      [source = source_](const LoadContext&) { return source->List(); });
  if (models.ok()) {
    const MutexLock lock(listed_mutex_);
    listed_ = *models;
  }
  return models;
}

void ModelLoader::SetState(const std::string& model, int64_t version, VersionState state,
                           const std::string& reason) const {
  const MutexLock lock(listed_mutex_);
  states_.insert_or_assign(VersionKey(model, version), std::pair(state, reason));
  if (state == VersionState::kReady) differences_.erase({model, version});
}

std::set<int64_t> ModelLoader::CompareWithDisk(const std::string& model) {
  std::set<int64_t> other_bytes;
  const auto held = held_.find(model);
  if (held == held_.end()) return other_bytes;
  for (const auto& [version, loaded] : held->second) {
    const Result<std::string> there =
        reads_.Run<std::string>({.name = "the digest of " + VersionText(model, version)},
                                [source = source_, model, version = version](const LoadContext&) {
                                  return source->Digest(model, version);
                                });
    std::string difference;
    if (there.status().code() == StatusCode::kNotFound) {
      difference = "its folder is gone; the loaded version serves on";
    } else if (there.status().code() == StatusCode::kBadPackage) {
      difference = there.status().message();
    } else if (!there.ok()) {
      break;  // The repository does not respond.
    } else if (!loaded.digest.empty() && *there != loaded.digest) {
      difference = "differs on disk from what is served; load --replace takes it";
      other_bytes.insert(version);
    }
    SetDifference(model, version, difference);
  }
  return other_bytes;
}

void ModelLoader::SetDifference(const std::string& model, int64_t version,
                                const std::string& difference) {
  {
    const MutexLock lock(listed_mutex_);
    const std::string before = std::exchange(differences_[{model, version}], difference);
    if (difference.empty() || difference == before) return;
  }
  options_.report(
      {.what = "differs_on_disk", .model = model, .version = version, .message = difference});
}

Result<std::vector<ServedVersion>> ModelLoader::Index() const {
  for (const auto& [model, versions] : served_->withdrawn()) {
    for (const int64_t version : versions) {
      SetState(model, version, VersionState::kFailed, VersionWithdrawn().message());
    }
  }
  RepositoryModels there;
  if (reads_.hung() > 0) {
    const MutexLock lock(listed_mutex_);
    there = listed_;
  } else {
    ASSIGN_OR_RETURN(there, source_->List());
  }
  std::vector<ServedVersion> served = served_->List();
  std::map<VersionKey, ServedVersion> index;
  {
    const MutexLock lock(listed_mutex_);
    for (const auto& [model, versions] : there) {
      if (!versions.ok()) continue;
      for (const int64_t version : *versions) {
        ServedVersion entry = {.model = model,
                               .version = version,
                               .labels = {},
                               .state = VersionState::kUnloaded,
                               .reason = "not loaded",
                               .program = {},
                               .engine = nullptr};
        const auto known = states_.find({model, version});
        if (known != states_.end() && known->second.first != VersionState::kReady) {
          entry.state = known->second.first;
          entry.reason = known->second.second;
        }
        index.emplace(VersionKey(model, version), std::move(entry));
      }
    }
    for (ServedVersion& version : served) {
      const VersionKey key(version.model, version.version);
      const auto difference = differences_.find(key);
      if (difference != differences_.end()) version.reason = difference->second;
      index.insert_or_assign(key, std::move(version));
    }
  }
  std::vector<ServedVersion> listed;
  for (auto& [key, entry] : index) listed.push_back(std::move(entry));
  return listed;
}

}  // namespace embershard
