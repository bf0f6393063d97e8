#include "engine/version_states.h"

namespace embershard {

void VersionStates::Set(const std::string& model, int64_t version, VersionState state,
                        const std::string& reason) {
  const MutexLock lock(mutex_);
  states_.insert_or_assign(VersionKey(model, version), std::pair(state, reason));
}

std::vector<ServedVersion> VersionStates::List(const RepositoryModels& there,
                                               std::vector<ServedVersion> served) const {
  std::map<VersionKey, ServedVersion> index;
  {
    const MutexLock lock(mutex_);
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
