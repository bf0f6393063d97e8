#include "package/repository.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "package/folder.h"
#include "package/manifest.h"
#include "package/names.h"
#include "package/refusal.h"

namespace embershard {
namespace {

namespace fs = std::filesystem;

// Returns 0 if `name` is not a version number.
int64_t VersionOf(const std::string& name) {
  int64_t version = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), version);
  const bool whole = error == std::errc() && end == name.data() + name.size();
  return whole && version > 0 && name[0] != '0' ? version : 0;
}

// Includes versions that cannot be read, whose load reports the error. Skips entries that are not
// folders, and those that were removed meanwhile.
Result<std::vector<int64_t>> ListVersions(const fs::path& model) {
  std::vector<int64_t> versions;
  std::error_code error;
  for (fs::directory_iterator entry(model, error), end; !error && entry != end;
       entry.increment(error)) {
    const int64_t version = VersionOf(entry->path().filename().native());
    std::error_code unreadable;
    const bool exists = fs::exists(entry->path() / kManifestFile, unreadable);
    if (version > 0 && (exists || unreadable)) versions.push_back(version);
  }
  const bool absent =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !absent) {
    return BadPackage("model '", model.filename().native(), "': ", model.native(),
                      ": cannot be read: ", error.message());
  }
  std::ranges::sort(versions);
  return versions;
}

}  // namespace

Result<RepositoryModels> ListRepository(const fs::path& repository) {
  RepositoryModels models;
  std::error_code error;
  fs::directory_iterator entry(repository, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().native();
    if (!IsPlainName(name)) continue;
    Result<std::vector<int64_t>> versions = ListVersions(entry->path());
    if (!versions.ok() || !versions->empty()) models.emplace(name, std::move(versions));
  }
  if (!error) return models;
  return NotFound(repository.native(),
                  ": expected a folder of models that can be read: ", error.message());
}

Result<std::string> ReadManifestDigest(const fs::path& version_folder) {
  constexpr size_t kDigits = 64, kBytesMax = 4096;
  const fs::path path = version_folder / kManifestDigestFile;
  ASSIGN_OR_RETURN(const File file, OpenRegular(AT_FDCWD, path, kManifestDigestFile));
  if (!file.is_open()) return NotFound(path.native(), ": missing file");
  ASSIGN_OR_RETURN(const std::string line, ReadWhole(file, kManifestDigestFile, kBytesMax));
  return line.substr(0, kDigits);
}

fs::path VersionFolder(const fs::path& repository, const std::string& model, int64_t version) {
  return repository / model / std::to_string(version);
}

Status CheckNames(const std::string& model, int64_t version, const std::string& got_model,
                  int64_t got_version) {
  if (got_model != model) {
    return Refusal(kManifestFile, "model", model + " (its folder)", got_model);
  }
  if (got_version == version) return {};
  return Refusal(kManifestFile, "version", std::to_string(version) + " (its folder)",
                 std::to_string(got_version));
}

}  // namespace embershard
