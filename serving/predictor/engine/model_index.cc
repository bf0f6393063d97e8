// What a ModelLoader knows of the versions in the repository.

#include <utility>

#include "engine/model_loader.h"

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
      for (const int64_t version : versions) {
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
  }
  for (ServedVersion& each : served) {
    const VersionKey key(each.model, each.version);
    index.insert_or_assign(key, std::move(each));
  }
  std::vector<ServedVersion> listed;
  for (auto& [key, entry] : index) listed.push_back(std::move(entry));
  return listed;
}

}  // namespace embershard
