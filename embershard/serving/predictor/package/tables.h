// The rows of every table, each table in an address range of its own, chunk behind chunk and then
// one readable page: kernels may read past the last row.

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
  kMmap,      // File pages, shared between processes; read again where the system took some back.
              // Where its pages are larger than the format's 4096 bytes, the same as kResident.
  kResident,  // Private memory, read at load, huge pages where the system gives them.
};

// Where a chunk's rows lie. The table is null where none is loaded.
struct LoadedChunk {
  std::shared_ptr<const AddressRange> table;
  size_t offset = 0;  // Into the table's range.
};

// The chunks of tables that are in memory, for packages loaded later that have some of them too.
// Forgets a chunk with the last table that holds it. Thread-safe.
class LoadedChunks {
 public:
  // `key`: digest, shape and residency; those that add and find agree on it.
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

// Immutable once opened: any thread may read.
class TableStore {
 public:
  // Checks every chunk's size and header, and its sha256 as the bytes are read. Packages are
  // immutable: with kMmap, a file that is cut short afterwards ends the process when its lost
  // pages are touched.
  //
  // What `loaded` (null: nothing) has is not read again. A table all of whose chunks it has
  // in one table is that table; other mapped chunks are its pages; other resident ones are
  // copied from it. What is opened is added there.
  static Result<std::unique_ptr<TableStore>> Open(const PackageFolder& folder,
                                                  const Manifest& manifest,
                                                  TableResidency residency,
                                                  LoadedChunks* loaded = nullptr);
  TableStore(const TableStore&) = delete;
  TableStore& operator=(const TableStore&) = delete;

  // Where the first row of `table` lies.
  const std::byte* rows(size_t table) const { return ranges_[table]->base(); }

  // From rows(table) to the end of its last page. One more readable page follows.
  size_t size_bytes(size_t table) const { return ranges_[table]->size_bytes() - PageBytes(); }

 private:
  using Ranges = std::vector<std::shared_ptr<const AddressRange>>;

  explicit TableStore(Ranges ranges) : ranges_(std::move(ranges)) {}

  const Ranges ranges_;  // One for each table.
};

}  // namespace embershard
