// What lies in a repository: <repository>/<model>/<version>/manifest.json.

#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

namespace embershard {

// Numbers of versions, ascending and at least one, by model; kBadPackage: the model's folder cannot
// be read. A version whose folder cannot be read is among them. What is being published is not
// there yet: its folder gets its name when it is whole.
using RepositoryModels = std::map<std::string, Result<std::vector<int64_t>>>;

// kNotFound where there is no such folder, or it cannot be read.
Result<RepositoryModels> ListRepository(const std::filesystem::path& repository);

// The sha256 of a version's manifest as its own file states it now, unchecked. kNotFound: there is
// no such file.
Result<std::string> ReadManifestDigest(const std::filesystem::path& version_folder);

// Where a version lies.
std::filesystem::path VersionFolder(const std::filesystem::path& repository,
                                    const std::string& model, int64_t version);

// Refuses a package whose manifest names another model or version than its folder
// (kBadPackage).
Status CheckNames(const std::string& model, int64_t version, const std::string& got_model,
                  int64_t got_version);

}  // namespace embershard
