// What has become of the versions that are not served: why there is none of them.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "engine/served_models.h"
#include "package/repository.h"

namespace embershard {

// Thread-safe.
class VersionStates {
 public:
  // `reason`: why it is not ready.
  void Set(const std::string& model, int64_t version, VersionState state,
           const std::string& reason);

  // All versions `there`, models and versions ascending: each of `served` as it is, the others
  // being loaded, failed, or not loaded.
  std::vector<ServedVersion> List(const RepositoryModels& there,
                                  std::vector<ServedVersion> served) const;

 private:
  using VersionKey = std::pair<std::string, int64_t>;

  mutable Mutex mutex_;
  std::map<VersionKey, std::pair<VersionState, std::string>> states_ GUARDED_BY(mutex_);
};

}  // namespace embershard
