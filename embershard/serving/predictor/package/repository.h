// Lists the versions in a repository: <repository>/<model>/<version>/manifest.json.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace embershard {

// Maps each model to its version numbers, ascending and at least one. kBadPackage if the model's
// folder cannot be read. Includes versions whose folder cannot be read. A version that is still
// being published is not listed, because its folder gets its name only when it is complete.
using RepositoryModels = std::map<std::string, Result<std::vector<int64_t>>>;

// Fails with kNotFound if the folder does not exist or cannot be read.
Result<RepositoryModels> ListRepository(const std::filesystem::path& repository);

// Reads the sha256 in the version's digest file, without checking it. Fails with kNotFound if there
// is no such file.
Result<std::string> ReadManifestDigest(const std::filesystem::path& version_folder);

std::filesystem::path VersionFolder(const std::filesystem::path& repository,
                                    const std::string& model, int64_t version);

// kBadPackage if the manifest names another model or version than the folder.
Status CheckNames(const std::string& model, int64_t version, const std::string& got_model,
                  int64_t got_version);

}  // namespace embershard
