// The files of a package on disk, reached without following a link.

#ifndef EMBERSHARD_PACKAGE_FOLDER_H_
#define EMBERSHARD_PACKAGE_FOLDER_H_

#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/read_control.h"
#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

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

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_FOLDER_H_
