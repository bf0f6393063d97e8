#include "package/package.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
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

// Adding a plan exchanges a package's folder for one with the plan. Who reads files of both finds
// that they do not belong together, which is no damage: the package is opened again.
constexpr int kTries = 3;

// The manifest itself or its digest.
Result<std::string> ReadOwnFile(const PackageFolder& folder, const char* name) {
  ASSIGN_OR_RETURN(File file, folder.OpenFile(name));
  return ReadWhole(file, name, kJsonBytesMax);
}

using CheckLine = std::function<Status(const std::string& line)>;

Status TakeAny(const std::string&) { return {}; }

// The digest comes first: nothing of a manifest means anything before. `check` is shown the line
// that has it, before anything else is read.
Result<Manifest> ReadManifest(const PackageFolder& folder, const CheckLine& check = TakeAny) {
  constexpr size_t kDigits = 64;
  ASSIGN_OR_RETURN(std::string line, ReadOwnFile(folder, kManifestDigestFile));
  RETURN_IF_ERROR(check(line));
  ASSIGN_OR_RETURN(std::string text, ReadOwnFile(folder, kManifestFile));
  const std::string listed = line.substr(0, kDigits);
  if (!IsHex(listed, kDigits) || line != listed + "  " + kManifestFile + "\n") {
    return Refusal(kManifestDigestFile, "sha256",
                   std::string("one line: 64 hex digits, two spaces, ") + kManifestFile,
                   "something else");
  }
  const std::string digest = Sha256Hex(text.data(), text.size());
  if (digest != listed) return Refusal(kManifestFile, "sha256", listed, digest);
  return ParseManifest(text);
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

// Parses every plan, and gives the wanted one.
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

// Checks the files that nothing here reads: programs, reports.
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

// Whether the folder of that path is another one than `held`, which was opened there before.
bool WasExchanged(const File& held, const std::filesystem::path& path) {
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
  // By its path: a folder that a plan was added to holds the same programs.
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Open(folder_, control));
  return ReadListedFile(folder, manifest_, name);
}

Result<std::unique_ptr<Package>> Package::Open(const std::filesystem::path& path,
                                               const PackageOptions& options) {
  for (int tries_left = kTries; true; --tries_left) {
    // Held open, so that no other folder gets its number.
    const File held(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    Result<std::unique_ptr<Package>> opened = OpenOnce(path, options);
    if (opened.ok() || tries_left == 1 || !WasExchanged(held, path)) return opened;
  }
}

Result<std::unique_ptr<Package>> Package::OpenOnce(const std::filesystem::path& path,
                                                   const PackageOptions& options) {
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Open(path, options.control));
  const CheckLine check = [&](const std::string& line) {
    return options.trusted == nullptr ? Status() : CheckSignature(path, line, *options.trusted);
  };
  ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(folder, check));
  RETURN_IF_ERROR(folder.CheckFiles(manifest));

  const std::string& wanted = options.plan.empty() ? manifest.default_plan : options.plan;
  if (std::count(manifest.plans.begin(), manifest.plans.end(), wanted) == 0) {
    return NoSuchPlan(manifest, wanted);
  }
  // Small files first: most that can be wrong with a package shows before its tables are read.
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

Result<PackageOutline> ReadOutline(const std::filesystem::path& path, TableResidency residency) {
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Open(path));
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(folder));
  std::set<std::string> chunks;
  for (const TableSpec& table : manifest.tables) {
    chunks.insert(table.chunks.begin(), table.chunks.end());
  }
  PackageOutline outline = {.model = manifest.model, .version = manifest.version, .memory = {}};
  for (const auto& [file, spec] : manifest.files) {
    if (residency == TableResidency::kMmap && chunks.contains(file)) continue;
    outline.memory.emplace(spec.sha256, spec.bytes);
  }
  return outline;
}

Status VerifyPackage(const std::filesystem::path& folder) {
  const Result<std::unique_ptr<Package>> package = Package::Open(folder, {});
  return package.status();
}

}  // namespace embershard
