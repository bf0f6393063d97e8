// A package opened for serving: its manifest, tables, id maps, plan and samples.

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
  // kMmap shares the page cache and starts at once; kResident copies the tables
  // into huge pages where the system gives them, for the fastest lookups.
  TableResidency residency = TableResidency::kMmap;

  // Name of a plan in the package. Empty: the manifest's default.
  std::string plan;

  // What is loaded already, and shared where it has the same digest. Null: nothing is.
  LoadedChunks* loaded = nullptr;

  // How fast large files are read. Null: as fast as they can be.
  ReadControl* control = nullptr;

  // Who must have signed the package. Null: it needs no signature.
  std::shared_ptr<const TrustedKeys> trusted = nullptr;
};

// A package whose manifest has been read, and no other file.
struct PackageOutline {
  std::filesystem::path path;
  File folder;  // Open, so that no other folder gets its number.
  Manifest manifest;
  std::string digest;  // Of the manifest, 64 hex digits.
};

// Checks the signature if `trusted` is not null, the manifest's digest and the manifest. Refusals
// are kBadPackage with file and field. A plan may be added meanwhile.
Result<PackageOutline> ReadOutline(const std::filesystem::path& path,
                                   const std::shared_ptr<const TrustedKeys>& trusted);

// A part of what a version takes of the memory, once if several versions have it.
using MemoryParts = std::map<std::string, uint64_t>;  // Bytes by digest.

// What the package takes if it is opened: vocabularies, programs, and tables that are copied.
// Mapped tables take none that the system could not take back.
MemoryParts MemoryOf(const Manifest& manifest, TableResidency residency);

// Immutable once opened: any thread may read.
class Package {
 public:
  // Checks every size and every sha256 before it returns. Refusals are kBadPackage with file and
  // field (kNotFound: no such plan). A plan may be added meanwhile: the manifest is read again
  // then.
  static Result<std::unique_ptr<Package>> Open(const PackageOutline& outline,
                                               const PackageOptions& options);

  // The same for a folder, whose outline is read first.
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

  // All of a file that the manifest lists, such as a program, read and checked again: what is
  // returned are the bytes that were hashed. kBadPackage when they are others than at Open().
  // `control`: as in PackageOptions.
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

// Everything Open() checks, and nothing kept.
Status VerifyPackage(const std::filesystem::path& folder);

}  // namespace embershard
