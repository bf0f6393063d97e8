// The rows of every table in one reserved address range, chunk behind chunk.
//
//   base ── table 0 ─────────────── table 1 ────── ... ── one readable page
//           chunk 0 │ chunk 1 │ ..  chunk 0 │ ..          (kernels may read past
//           page-aligned, rows follow one another          the last row)

#ifndef EMBERSHARD_PACKAGE_TABLES_H_
#define EMBERSHARD_PACKAGE_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

enum class TableResidency {
  kMmap,      // File pages, read on first use, shared between processes.
  kResident,  // Private memory, read at load, huge pages where the system gives them.
};

// Immutable once opened: any thread may read.
class TableStore {
 public:
  // Checks every chunk's header, and its sha256 as the bytes are read.
  static Result<std::unique_ptr<TableStore>> Open(const std::filesystem::path& folder,
                                                  const Manifest& manifest,
                                                  TableResidency residency);
  TableStore(const TableStore&) = delete;
  TableStore& operator=(const TableStore&) = delete;
  ~TableStore();

  const std::byte* base() const { return base_; }
  size_t size_bytes() const { return size_bytes_; }

  // Where the first row of `table` lies, counted from base().
  size_t offset_bytes(size_t table) const { return offsets_bytes_[table]; }

 private:
  TableStore() = default;

  std::byte* base_ = nullptr;  // Owned: one reservation, unmapped as a whole.
  size_t size_bytes_ = 0;
  std::vector<size_t> offsets_bytes_;
};

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_TABLES_H_
