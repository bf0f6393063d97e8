#include "package/listed_file.h"

#include <algorithm>
#include <vector>

#include "package/refusal.h"

namespace embershard {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;  // Still in the cache when it is hashed.

}  // namespace

Result<ListedFile> ListedFile::Open(const PackageFolder& folder, const Manifest& manifest,
                                    std::string_view name) {
  const FileSpec& spec = manifest.files.at(std::string(name));
  Result<File> file = folder.OpenFile(name);
  if (!file.ok()) return file.status();
  ListedFile listed(std::move(*file), name, &spec, folder.control());
  if (Status status = listed.CheckSize(); !status.ok()) return status;
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
    if (control_ != nullptr) {
      if (Status status = control_->Spend(piece); !status.ok()) return status;
    }
    position_ += piece;
    done += piece;
  }
  return {};
}

Status ListedFile::Skip() {
  std::vector<std::byte> piece(std::min<uint64_t>(size_bytes() - position_, kPieceBytes));
  while (position_ < size_bytes()) {
    const uint64_t left = size_bytes() - position_;
    Status status = Read(piece.data(), std::min<uint64_t>(left, piece.size()));
    if (!status.ok()) return status;
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
  Result<ListedFile> file = ListedFile::Open(folder, manifest, name);
  if (!file.ok()) return file.status();
  std::string bytes(file->size_bytes(), '\0');
  if (Status status = file->Read(bytes.data(), bytes.size()); !status.ok()) return status;
  if (Status status = file->CheckDigest(); !status.ok()) return status;
  return bytes;
}

Status CheckListedFile(const PackageFolder& folder, const Manifest& manifest,
                       std::string_view name) {
  Result<ListedFile> file = ListedFile::Open(folder, manifest, name);
  if (!file.ok()) return file.status();
  if (Status status = file->Skip(); !status.ok()) return status;
  return file->CheckDigest();
}

}  // namespace embershard
