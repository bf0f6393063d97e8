#include "package/loaded_chunks.h"

namespace embershard {

LoadedChunk LoadedChunks::Find(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return {};
  return {.table = found->second.table.lock(), .offset = found->second.offset};
}

void LoadedChunks::Add(const std::string& key, const LoadedChunk& chunk) {
  const MutexLock lock(mutex_);
  std::erase_if(known_, [](const auto& known) { return known.second.table.expired(); });
  known_.insert_or_assign(key, Known{.table = chunk.table, .offset = chunk.offset});
}

}  // namespace embershard
