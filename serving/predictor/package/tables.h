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

#include "base/address_range.h"
#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

enum class TableResidency {
  kMmap,      // File pages, read on first use, shared between processes. Where the system's
              // pages are larger than the format's 4096 bytes, the same as kResident.
  kResident,  // Private memory, read at load, huge pages where the system gives them.
};

// Immutable once opened: any thread may read.
class TableStore {
 public:
  // Checks every chunk's size and header, and its sha256 as the bytes are read. Packages are
  // immutable: with kMmap, a file that is cut short afterwards ends the process when its lost
  // pages are touched.
  static Result<std::unique_ptr<TableStore>> Open(const std::filesystem::path& folder,
                                                  const Manifest& manifest,
                                                  TableResidency residency);
  TableStore(const TableStore&) = delete;
  TableStore& operator=(const TableStore&) = delete;

  const std::byte* base() const { return range_.base(); }

  // From base() to the end of the last table's last page. One more readable page follows.
  size_t size_bytes() const { return range_.size_bytes() - PageBytes(); }

  // Where the first row of `table` lies, counted from base().
  size_t offset_bytes(size_t table) const { return offsets_bytes_[table]; }

 private:
  TableStore() = default;

  AddressRange range_;
  std::vector<size_t> offsets_bytes_;
};

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_TABLES_H_
