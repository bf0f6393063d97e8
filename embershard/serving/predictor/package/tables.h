// The rows of all tables. Each table has an address range of its own, with its chunks one after
// another and then one readable page, because kernels may read past the last row.

#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "package/address_range.h"
#include "package/folder.h"
#include "package/manifest.h"

namespace embershard {

enum class TableResidency {
  // File pages, shared between processes. The system may drop some and read them again. Same as
  // kResident if the system's pages are larger than the format's 4096 bytes.
  kMmap,
  // Private memory, filled when the table is loaded, in huge pages if the system has them.
  kResident,
};

// The table is null if the chunk is not loaded.
struct LoadedChunk {
  std::shared_ptr<const AddressRange> table;
  size_t offset = 0;  // Offset in the table's range.
};

// Chunks in memory, which packages that are loaded later share. A chunk is forgotten when the last
// table that holds it is destroyed. Thread-safe.
class LoadedChunks {
 public:
  // Callers choose the format of `key`, which states the chunk's digest, shape and residency.
  LoadedChunk Find(const std::string& key) const;
  void Add(const std::string& key, const LoadedChunk& chunk);

 private:
  struct Known {
    std::weak_ptr<const AddressRange> table;
    size_t offset = 0;
  };

  mutable Mutex mutex_;
  std::map<std::string, Known> known_ GUARDED_BY(mutex_);
};

// Immutable once opened, thus thread-safe.
class TableStore {
 public:
  // Checks the size and header of every chunk, and its sha256 while reading it. Package files must
  // not change afterwards: with kMmap, access to pages of a file that was truncated ends the
  // process.
  //
  // Chunks in `loaded`, which may be null, are not read again. If all chunks of a table are in one
  // loaded table, that table is shared. Other mapped chunks share the loaded pages, and other
  // resident chunks are copied in memory. Opened chunks are added to `loaded`.
  static Result<std::unique_ptr<TableStore>> Open(const PackageFolder& folder,
                                                  const Manifest& manifest,
                                                  TableResidency residency,
                                                  LoadedChunks* loaded = nullptr);
  TableStore(const TableStore&) = delete;
  TableStore& operator=(const TableStore&) = delete;

  // Address of the first row of `table`.
  const std::byte* rows(size_t table) const { return ranges_[table]->base(); }

  // Includes the rest of the table's last page. One more readable page follows.
  size_t size_bytes(size_t table) const { return ranges_[table]->size_bytes() - PageBytes(); }

 private:
  using Ranges = std::vector<std::shared_ptr<const AddressRange>>;

  explicit TableStore(Ranges ranges) : ranges_(std::move(ranges)) {}

  const Ranges ranges_;  // One for each table.
};

}  // namespace embershard
