// The files of a package on disk, reached without following a link, and those whose size and
// digest the manifest lists.

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

// Opens a regular file, following no link at its end; the result is not open where there is none.
// `folder`: the descriptor that `path` starts from, as openat() takes it. `name`: for refusals.
Result<File> OpenRegular(int folder, const std::string& path, std::string_view name);

// The bytes of a file that no manifest lists. Refuses more than `bytes_max`.
Result<std::string> ReadWhole(const File& file, std::string_view name, uint64_t bytes_max);

// Holds the folder itself open, so that it stays the same one when its name changes.
// Refusals are kBadPackage and name the file.
class PackageFolder {
 public:
  // `control`: told of what is read of large files. Null: nobody is.
  static Result<PackageFolder> Open(const std::filesystem::path& path,
                                    ReadControl* control = nullptr);

  ReadControl* control() const { return control_; }

  // Opens a regular file. `file`: its path in the package, as IsFilePath() takes it.
  Result<File> OpenFile(std::string_view file) const;

  // Refuses what is missing, of another size than `files` says, or not listed there:
  // links, empty folders and special files too.
  Status CheckFiles(const Manifest& manifest) const;

 private:
  PackageFolder(File folder, ReadControl* control)
      : folder_(std::move(folder)), control_(control) {}

  File folder_;
  ReadControl* control_;
};

// Goes through one listed file once, from its beginning, and hashes what it reads:
// what has been read is what has been checked, whatever happens to the file.
class ListedFile {
 public:
  // Refuses a file that is missing, or of another size than listed.
  // REQUIRES: `manifest` lists `name`, and outlives this.
  static Result<ListedFile> Open(const PackageFolder& folder, const Manifest& manifest,
                                 std::string_view name);

  const std::string& name() const { return name_; }
  uint64_t size_bytes() const { return spec_->bytes; }
  uint64_t position() const { return position_; }
  const File& file() const { return file_; }

  // The next `size` bytes, as fast as the folder's ReadControl lets. Refuses a file that ends
  // before.
  Status Read(void* out, size_t size);

  // Reads what is left, into nothing.
  Status Skip();

  // Refuses another digest than listed. REQUIRES: all has been read; called once.
  Status CheckDigest();

  // Refuses a file that has become shorter or longer than listed.
  Status CheckSize() const;

 private:
  ListedFile(File file, std::string_view name, const FileSpec* spec, ReadControl* control)
      : file_(std::move(file)), name_(name), spec_(spec), control_(control) {}

  File file_;
  std::string name_;
  const FileSpec* spec_;
  ReadControl* control_;  // Null: none.
  uint64_t position_ = 0;
  Sha256 sha256_;
};

// The checked bytes of a whole file.
Result<std::string> ReadListedFile(const PackageFolder& folder, const Manifest& manifest,
                                   std::string_view name);

// Checks a file and keeps nothing.
Status CheckListedFile(const PackageFolder& folder, const Manifest& manifest,
                       std::string_view name);

}  // namespace embershard
