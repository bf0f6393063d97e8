#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/read_control.h"
#include "base/status.h"
#include "package/id_maps.h"
#include "package/manifest.h"
#include "package/plan.h"
#include "package/samples.h"
#include "package/tables.h"
#include "package/trusted_keys.h"

namespace embershard {

struct PackageOptions {
  // kMmap shares the page cache and loads faster. kResident copies the tables into memory, in huge
  // pages if the system has them, for the fastest lookups.
  TableResidency residency = TableResidency::kMmap;

  // Name of a plan in the package. Empty: the manifest's default plan.
  std::string plan;

  // Chunks that are already loaded, which are shared if their digest is the same. May be null.
  LoadedChunks* loaded = nullptr;

  // Limits the rate at which files are read. Null: no limit.
  ReadControl* control = nullptr;

  // Keys of which one must have signed the package. Null: it needs no signature.
  std::shared_ptr<const TrustedKeys> trusted = nullptr;
};

struct PackageOutline {
  std::filesystem::path path;
  File folder;  // Held open, so that no other folder gets its inode number.
  Manifest manifest;
  std::string digest;  // sha256 of the manifest, 64 hex digits.
};

// Checks the manifest and its digest, and the signature if `trusted` is not null. Errors are
// kBadPackage with file and field. Succeeds even if a plan is added meanwhile.
Result<PackageOutline> ReadOutline(const std::filesystem::path& path,
                                   const std::shared_ptr<const TrustedKeys>& trusted);

// Memory of a version by file: bytes by digest. Files with the same digest are loaded only once,
// even if several versions have them.
using MemoryParts = std::map<std::string, uint64_t>;

// Memory that the package needs when it is opened: vocabularies, programs and copied tables. Mapped
// tables do not count, because the system can reclaim their pages.
MemoryParts MemoryOf(const Manifest& manifest, TableResidency residency);

class Package {
 public:
  // Checks every size and every sha256. Errors are kBadPackage with file and field, or kNotFound if
  // there is no such plan. If a plan is added meanwhile, reads the manifest again.
  static Result<std::unique_ptr<Package>> Open(const PackageOutline& outline,
                                               const PackageOptions& options);

  static Result<std::unique_ptr<Package>> Open(const std::filesystem::path& folder,
                                               const PackageOptions& options);

  Package(const Package&) = delete;
  Package& operator=(const Package&) = delete;

  const Manifest& manifest() const { return manifest_; }
  const Schema& schema() const { return manifest_.schema; }
  const Plan& plan() const { return plan_; }
  const TableStore& tables() const { return *tables_; }
  const IdMap& id_map(size_t sparse_input) const { return *id_maps_[sparse_input]; }
  const std::vector<SampleRequest>& samples() const { return samples_; }

  // Reads a listed file, such as a program, and checks it again. Fails with kBadPackage if it has
  // changed since Open(). `control`: see PackageOptions.
  Result<std::string> ReadFile(const std::string& name, ReadControl* control) const;

 private:
  Package() = default;
  static Result<std::unique_ptr<Package>> OpenOnce(const PackageOutline& outline,
                                                   const PackageOptions& options);

  std::filesystem::path folder_;
  Manifest manifest_;
  Plan plan_;
  std::vector<std::unique_ptr<IdMap>> id_maps_;
  std::vector<SampleRequest> samples_;
  std::unique_ptr<TableStore> tables_;
};

// The same checks as Package::Open().
Status VerifyPackage(const std::filesystem::path& folder);

}  // namespace embershard
