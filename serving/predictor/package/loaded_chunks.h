// The chunks of tables that are in memory, for packages loaded later that have some of them too.

#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "base/address_range.h"
#include "base/mutex.h"

namespace embershard {

// Where a chunk's rows lie. The table is null where none is loaded.
struct LoadedChunk {
  std::shared_ptr<const AddressRange> table;
  size_t offset = 0;  // Into the table's range.
};

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

}  // namespace embershard
