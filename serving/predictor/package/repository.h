// What lies in a repository: <repository>/<model>/<version>/manifest.json.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace embershard {

// Numbers of versions, ascending and at least one, by model. What is being published is not there
// yet: its folder gets its name when it is whole.
using RepositoryModels = std::map<std::string, std::vector<int64_t>>;

// kNotFound where there is no such folder, or it cannot be read.
Result<RepositoryModels> ListRepository(const std::filesystem::path& repository);

// Where a version lies.
std::filesystem::path VersionFolder(const std::filesystem::path& repository,
                                    const std::string& model, int64_t version);

// Refuses a package whose manifest names another model or version than its folder
// (kBadPackage).
Status CheckNames(const std::string& model, int64_t version, const std::string& got_model,
                  int64_t got_version);

}  // namespace embershard
