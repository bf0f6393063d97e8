#include "package/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/text.h"
#include "package/refusal.h"

namespace embershard {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
// O_NONBLOCK, because opening a pipe would wait for a writer.
constexpr int kFileFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

// Turns errno into an error for `path`, which could not be opened as `expected`.
Status NotOpened(std::string_view path, std::string_view expected) {
  if (errno == ENOENT) return BadPackage(path, ": missing file");
  if (errno == ELOOP) return Refusal(path, "file", expected, "a symbolic link");
  if (errno == ENOTDIR) return Refusal(path, "file", expected, std::strerror(errno));
  return BadPackage(path, ": cannot be read: ", std::strerror(errno));
}

// Opens one part of the path at a time, without following links. The result is not open if a part
// is missing or not a folder; errno has the reason.
File OpenFolder(const File& root, std::string_view path) {
  File folder(openat(root.descriptor(), ".", kFolderFlags));
  while (folder.is_open() && !path.empty()) {
    const size_t end = path.find('/');
    const std::string part(path.substr(0, end));
    folder = File(openat(folder.descriptor(), part.c_str(), kFolderFlags));
    path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  }
  return folder;
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  return S_ISFIFO(mode) ? "a FIFO" : "a device";
}

using FileSizes = std::map<std::string, uint64_t>;

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// Paths are relative to `root`, and may be longer than the system's limit.
Status ListFolder(const File& root, const std::string& path, FileSizes* files,
                  std::vector<std::string>* folders) {
  File opened = OpenFolder(root, path);
  std::unique_ptr<DIR, CloseFolder> folder(opened.is_open() ? fdopendir(dup(opened.descriptor()))
                                                            : nullptr);
  if (folder == nullptr) return NotOpened(PrintableAscii(path), "a folder that can be read");
  while (const dirent* entry = readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    const std::string entry_path = path.empty() ? name : path + "/" + name;
    struct stat status;
    if (fstatat(opened.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      return NotOpened(PrintableAscii(entry_path), "a regular file");
    }
    if (S_ISDIR(status.st_mode)) {
      folders->push_back(entry_path);
    } else if (S_ISREG(status.st_mode)) {
      files->emplace(entry_path, status.st_size);
    } else {
      return Refusal(PrintableAscii(entry_path), "file", "a regular file", KindOf(status.st_mode));
    }
  }
  return {};
}

constexpr size_t kPieceBytes = size_t{1} << 18;  // Small enough to be in the cache when hashed.

}  // namespace

Result<File> OpenRegular(int folder, const std::string& path, std::string_view name) {
  File file(openat(folder, path.c_str(), kFileFlags));
  if (!file.is_open() && errno == ENOENT) return file;
  struct stat status;
  if (!file.is_open() || fstat(file.descriptor(), &status) != 0) {
    return NotOpened(name, "a regular file");
  }
  if (!S_ISREG(status.st_mode)) {
    return Refusal(name, "file", "a regular file", KindOf(status.st_mode));
  }
  return file;
}

Result<std::string> ReadWhole(const File& file, std::string_view name, uint64_t bytes_max) {
  const uint64_t size = file.size_bytes();
  if (size > bytes_max) {
    return Refusal(name, "bytes", "at most " + std::to_string(bytes_max), std::to_string(size));
  }
  std::string bytes(size, '\0');
  bytes.resize(file.ReadAt(0, bytes.data(), size));
  return bytes;
}

Result<PackageFolder> PackageFolder::Open(const std::filesystem::path& path, ReadControl* control) {
  File folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return NotOpened(PrintableAscii(path.native()), "a folder");
  return PackageFolder(std::move(folder), control);
}

Result<File> PackageFolder::OpenFile(std::string_view file) const {
  const size_t slash = file.rfind('/');
  const std::string_view parent = file.substr(0, slash == std::string_view::npos ? 0 : slash);
  const std::string name(file.substr(parent.empty() ? 0 : slash + 1));
  const File folder = OpenFolder(folder_, parent);
  if (!folder.is_open()) return NotOpened(file, "a file");
  ASSIGN_OR_RETURN(File opened, OpenRegular(folder.descriptor(), name, file));
  if (!opened.is_open()) return BadPackage(file, ": missing file");
  return opened;
}

Status PackageFolder::CheckFiles(const Manifest& manifest) const {
  FileSizes sizes;
  std::vector<std::string> folders = {""};
  while (!folders.empty()) {
    const std::string path = folders.back();
    folders.pop_back();
    RETURN_IF_ERROR(ListFolder(folder_, path, &sizes, &folders));
  }
  std::set<std::string> listed = {kManifestFile, kManifestDigestFile};
  for (const auto& [file, spec] : manifest.files) listed.insert(file);
  for (const std::string& file : listed) {
    if (!sizes.contains(file)) return BadPackage(file, ": missing file");
  }
  for (const auto& [file, size] : sizes) {
    if (!listed.contains(file)) return BadPackage(PrintableAscii(file), ": unexpected file");
  }
  for (const auto& [file, spec] : manifest.files) {
    if (const uint64_t size = sizes.at(file); size != spec.bytes) {
      return Refusal(file, "bytes", std::to_string(spec.bytes), std::to_string(size));
    }
  }
  return {};
}

Result<ListedFile> ListedFile::Open(const PackageFolder& folder, const Manifest& manifest,
                                    std::string_view name) {
  const FileSpec& spec = manifest.files.at(std::string(name));
  ASSIGN_OR_RETURN(File file, folder.OpenFile(name));
  ListedFile listed(std::move(file), name, &spec, folder.control());
  RETURN_IF_ERROR(listed.CheckSize());
  return listed;
}

Status ListedFile::Read(void* out, size_t size) {
  for (size_t done = 0; done < size;) {
    const size_t piece = std::min(size - done, kPieceBytes);
    std::byte* const to = static_cast<std::byte*>(out) + done;
    if (file_.ReadAt(position_, to, piece) < piece) {
      return Refusal(name_, "bytes", std::to_string(size_bytes()), "a file that ends before");
    }
    sha256_.Update(to, piece);
    if (control_ != nullptr) RETURN_IF_ERROR(control_->Spend(piece));
    position_ += piece;
    done += piece;
  }
  return {};
}

Status ListedFile::Skip() {
  std::vector<std::byte> piece(std::min<uint64_t>(size_bytes() - position_, kPieceBytes));
  while (position_ < size_bytes()) {
    const uint64_t left = size_bytes() - position_;
    RETURN_IF_ERROR(Read(piece.data(), std::min<uint64_t>(left, piece.size())));
  }
  return {};
}

Status ListedFile::CheckDigest() {
  const std::string digest = sha256_.HexDigest();
  if (digest == spec_->sha256) return {};
  return Refusal(name_, "sha256", spec_->sha256, digest);
}

Status ListedFile::CheckSize() const {
  const uint64_t size = file_.size_bytes();
  if (size == spec_->bytes) return {};
  return Refusal(name_, "bytes", std::to_string(spec_->bytes), std::to_string(size));
}

Result<std::string> ReadListedFile(const PackageFolder& folder, const Manifest& manifest,
                                   std::string_view name) {
  ASSIGN_OR_RETURN(ListedFile file, ListedFile::Open(folder, manifest, name));
  std::string bytes(file.size_bytes(), '\0');
  RETURN_IF_ERROR(file.Read(bytes.data(), bytes.size()));
  RETURN_IF_ERROR(file.CheckDigest());
  return bytes;
}

Status CheckListedFile(const PackageFolder& folder, const Manifest& manifest,
                       std::string_view name) {
  ASSIGN_OR_RETURN(ListedFile file, ListedFile::Open(folder, manifest, name));
  RETURN_IF_ERROR(file.Skip());
  return file.CheckDigest();
}

}  // namespace embershard
