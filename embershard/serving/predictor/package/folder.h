// Reads the files of a package without following links, and checks their size and digest against
// the manifest.

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/read_control.h"
#include "base/sha256.h"
#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// Does not follow a link in the last part of the path. The result is not open if there is no such
// file. `folder` is the descriptor that `path` is relative to; see openat(). Errors contain `name`.
Result<File> OpenRegular(int folder, const std::string& path, std::string_view name);

// Reads a file that no manifest lists. Fails if the file is larger than `bytes_max`.
Result<std::string> ReadWhole(const File& file, std::string_view name, uint64_t bytes_max);

// Holds the folder itself open, so that it stays the same folder if its name changes. Errors are
// kBadPackage and name the file.
class PackageFolder {
 public:
  // `control` limits the rate of reading files that the manifest lists. Null: no limit.
  static Result<PackageFolder> Open(const std::filesystem::path& path,
                                    ReadControl* control = nullptr);

  ReadControl* control() const { return control_; }

  // `file`: its path in the package; see IsFilePath().
  Result<File> OpenFile(std::string_view file) const;

  // Fails for a file that is missing, not listed, or of another size than Manifest::files lists.
  // Also refuses links and special files.
  Status CheckFiles(const Manifest& manifest) const;

 private:
  PackageFolder(File folder, ReadControl* control)
      : folder_(std::move(folder)), control_(control) {}

  File folder_;
  ReadControl* control_;
};

// Reads one listed file once, from beginning to end, and hashes the bytes it read. The bytes that
// are used are the bytes that were checked, even if the file changes meanwhile.
class ListedFile {
 public:
  // Fails if the file is missing, or has another size than listed.
  // REQUIRES: `manifest` lists `name`, and outlives this.
  static Result<ListedFile> Open(const PackageFolder& folder, const Manifest& manifest,
                                 std::string_view name);

  const std::string& name() const { return name_; }
  uint64_t size_bytes() const { return spec_->bytes; }
  uint64_t position() const { return position_; }
  const File& file() const { return file_; }

  // Reads the next bytes, at the folder's ReadControl's rate. Fails if the file ends before.
  Status Read(void* out, size_t size);

  // Hashes the rest of the file, and discards it.
  Status Skip();

  // Fails if the digest is not the listed one. REQUIRES: called once, after the whole file was
  // read.
  Status CheckDigest();

  Status CheckSize() const;

 private:
  ListedFile(File file, std::string_view name, const FileSpec* spec, ReadControl* control)
      : file_(std::move(file)), name_(name), spec_(spec), control_(control) {}

  File file_;
  std::string name_;
  const FileSpec* spec_;
  ReadControl* control_;  // May be null.
  uint64_t position_ = 0;
  Sha256 sha256_;
};

Result<std::string> ReadListedFile(const PackageFolder& folder, const Manifest& manifest,
                                   std::string_view name);

Status CheckListedFile(const PackageFolder& folder, const Manifest& manifest,
                       std::string_view name);

}  // namespace embershard
