#include "package/package.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "package/folder.h"
#include "package/id_maps.h"
#include "package/json.h"
#include "package/names.h"
#include "package/refusal.h"

namespace embershard {
namespace {

// Adding a plan replaces a package's folder by a new one. A reader that has files of both folders
// finds that they do not match. The package is not damaged, so it is opened again.
constexpr int kTries = 3;

// The manifest and its digest file are not listed.
Result<std::string> ReadOwnFile(const PackageFolder& folder, const char* name) {
  ASSIGN_OR_RETURN(File file, folder.OpenFile(name));
  return ReadWhole(file, name, kJsonBytesMax);
}

struct ManifestRead {
  Manifest manifest;
  std::string digest;
};

// Reads the digest and checks its signature first, because an unverified manifest must not be used.
Result<ManifestRead> ReadManifest(const PackageFolder& folder, const std::filesystem::path& path,
                                  const TrustedKeys* trusted) {
  constexpr size_t kDigits = 64;
  ASSIGN_OR_RETURN(std::string line, ReadOwnFile(folder, kManifestDigestFile));
  if (trusted != nullptr) RETURN_IF_ERROR(CheckSignature(path, line, *trusted));
  ASSIGN_OR_RETURN(std::string text, ReadOwnFile(folder, kManifestFile));
  std::string listed = line.substr(0, kDigits);
  if (!IsHex(listed, kDigits) || line != listed + "  " + kManifestFile + "\n") {
    return Refusal(kManifestDigestFile, "sha256",
                   std::string("one line: 64 hex digits, two spaces, ") + kManifestFile,
                   "something else");
  }
  const std::string digest = Sha256Hex(text.data(), text.size());
  if (digest != listed) return Refusal(kManifestFile, "sha256", listed, digest);
  ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text));
  return ManifestRead{.manifest = std::move(manifest), .digest = std::move(listed)};
}

using IdMaps = std::vector<std::unique_ptr<IdMap>>;

Result<IdMaps> OpenIdMaps(const PackageFolder& folder, const Manifest& manifest) {
  IdMaps maps;
  std::map<std::string, std::shared_ptr<const Vocabulary>> vocabularies;
  for (const SparseInput& input : manifest.schema.sparse) {
    const IdMapSpec& spec = input.ids;
    if (spec.kind != IdMapKind::kVocab) {
      maps.push_back(MakeIdMap(spec));
      continue;
    }
    std::shared_ptr<const Vocabulary>& vocabulary = vocabularies[spec.file];
    if (vocabulary == nullptr) {
      ASSIGN_OR_RETURN(std::string bytes, ReadListedFile(folder, manifest, spec.file));
      ASSIGN_OR_RETURN(vocabulary, Vocabulary::Parse(std::move(bytes), spec.file));
    }
    if (vocabulary->size() != static_cast<size_t>(KnownIds(spec))) {
      return Refusal(spec.file, "keys", std::to_string(KnownIds(spec)) + " ids",
                     std::to_string(vocabulary->size()));
    }
    maps.push_back(MakeIdMap(spec, vocabulary));
  }
  return maps;
}

Result<Plan> ReadPlans(const PackageFolder& folder, const Manifest& manifest,
                       const std::string& wanted) {
  Plan chosen;
  for (const std::string& name : manifest.plans) {
    ASSIGN_OR_RETURN(std::string text, ReadListedFile(folder, manifest, PlanFile(name)));
    ASSIGN_OR_RETURN(Plan plan, ParsePlan(text, name, manifest));
    if (name == wanted) chosen = std::move(plan);
  }
  return chosen;
}

Status CheckOtherFiles(const PackageFolder& folder, const Manifest& manifest) {
  std::set<std::string> read = {manifest.samples};
  for (const TableSpec& table : manifest.tables)
    read.insert(table.chunks.begin(), table.chunks.end());
  for (const SparseInput& input : manifest.schema.sparse) read.insert(input.ids.file);
  for (const std::string& plan : manifest.plans) read.insert(PlanFile(plan));
  for (const auto& [file, spec] : manifest.files) {
    if (read.contains(file)) continue;
    RETURN_IF_ERROR(CheckListedFile(folder, manifest, file));
  }
  return {};
}

// `held` was opened at `path` before.
bool WasReplaced(const File& held, const std::filesystem::path& path) {
  struct stat before;
  struct stat now;
  return fstat(held.descriptor(), &before) == 0 && stat(path.c_str(), &now) == 0 &&
         (before.st_ino != now.st_ino || before.st_dev != now.st_dev);
}

Status NoSuchPlan(const Manifest& manifest, const std::string& name) {
  std::string known;
  for (const std::string& plan : manifest.plans) known += (known.empty() ? "" : ", ") + plan;
  return NotFound("plan: expected one of ", known, ", got '", name, "'");
}

}  // namespace

Result<std::string> Package::ReadFile(const std::string& name, ReadControl* control) const {
  // Opened by path, because the folder still has the same programs after a plan was added.
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Open(folder_, control));
  return ReadListedFile(folder, manifest_, name);
}

Result<PackageOutline> ReadOutline(const std::filesystem::path& path,
                                   const std::shared_ptr<const TrustedKeys>& trusted) {
  for (int tries_left = kTries; true; --tries_left) {
    File held(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto read = [&]() -> Result<ManifestRead> {
      ASSIGN_OR_RETURN(const PackageFolder folder, PackageFolder::Open(path));
      return ReadManifest(folder, path, trusted.get());
    };
    Result<ManifestRead> manifest = read();
    if (manifest.ok()) {
      return PackageOutline{.path = path,
                            .folder = std::move(held),
                            .manifest = std::move(manifest->manifest),
                            .digest = std::move(manifest->digest)};
    }
    if (tries_left == 1 || !WasReplaced(held, path)) return manifest.status();
  }
}

MemoryParts MemoryOf(const Manifest& manifest, TableResidency residency) {
  std::set<std::string> chunks;
  for (const TableSpec& table : manifest.tables) {
    chunks.insert(table.chunks.begin(), table.chunks.end());
  }
  MemoryParts memory;
  for (const auto& [file, spec] : manifest.files) {
    if (residency == TableResidency::kMmap && chunks.contains(file)) continue;
    memory.emplace(spec.sha256, spec.bytes);
  }
  return memory;
}

Result<std::unique_ptr<Package>> Package::Open(const std::filesystem::path& folder,
                                               const PackageOptions& options) {
  ASSIGN_OR_RETURN(const PackageOutline outline, ReadOutline(folder, options.trusted));
  return Open(outline, options);
}

Result<std::unique_ptr<Package>> Package::Open(const PackageOutline& outline,
                                               const PackageOptions& options) {
  Result<std::unique_ptr<Package>> opened = OpenOnce(outline, options);
  PackageOutline later;
  const File* folder = &outline.folder;
  for (int tries_left = kTries - 1; tries_left > 0; --tries_left) {
    if (opened.ok() || !WasReplaced(*folder, outline.path)) break;
    ASSIGN_OR_RETURN(later, ReadOutline(outline.path, options.trusted));
    folder = &later.folder;
    opened = OpenOnce(later, options);
  }
  return opened;
}

Result<std::unique_ptr<Package>> Package::OpenOnce(const PackageOutline& outline,
                                                   const PackageOptions& options) {
  const std::filesystem::path& path = outline.path;
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Open(path, options.control));
  Manifest manifest = outline.manifest;
  RETURN_IF_ERROR(folder.CheckFiles(manifest));

  const std::string& wanted = options.plan.empty() ? manifest.default_plan : options.plan;
  if (std::count(manifest.plans.begin(), manifest.plans.end(), wanted) == 0) {
    return NoSuchPlan(manifest, wanted);
  }
  // Small files first, to report most errors before reading the large tables.
  ASSIGN_OR_RETURN(Plan plan, ReadPlans(folder, manifest, wanted));
  ASSIGN_OR_RETURN(std::vector<SampleRequest> samples, ReadSamples(path, manifest));
  RETURN_IF_ERROR(CheckOtherFiles(folder, manifest));
  ASSIGN_OR_RETURN(IdMaps id_maps, OpenIdMaps(folder, manifest));
  ASSIGN_OR_RETURN(auto tables,
                   TableStore::Open(folder, manifest, options.residency, options.loaded));

  std::unique_ptr<Package> package(new Package);
  package->folder_ = path;
  package->manifest_ = std::move(manifest);
  package->plan_ = std::move(plan);
  package->id_maps_ = std::move(id_maps);
  package->samples_ = std::move(samples);
  package->tables_ = std::move(tables);
  return package;
}

Status VerifyPackage(const std::filesystem::path& folder) {
  const Result<std::unique_ptr<Package>> package = Package::Open(folder, {});
  return package.status();
}

}  // namespace embershard
