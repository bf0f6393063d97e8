#include "package/tables.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "package/folder.h"
#include "package/refusal.h"
#include "package/safetensors.h"

namespace embershard {
namespace {

constexpr size_t kChunkAlign = 4096;

// More than any current processor can address.
constexpr size_t kRangeBytesMax = size_t{1} << 56;

size_t WholePages(size_t bytes) { return (bytes + PageBytes() - 1) / PageBytes() * PageBytes(); }

// One chunk of a table, to be loaded from its file.
struct Chunk {
  const std::string& file;
  uint64_t rows;
  uint64_t row_bytes;
  size_t offset;  // Offset in its table's range.

  size_t data_bytes() const { return rows * row_bytes; }
};

Chunk ChunkOf(const TableSpec& table, size_t number) {
  const auto first = static_cast<int64_t>(number) * table.rows_per_chunk;
  const int64_t rows = std::min(table.rows_per_chunk, table.rows - first);
  return {.file = table.chunks[number],
          .rows = static_cast<uint64_t>(rows),
          .row_bytes = static_cast<uint64_t>(table.row_bytes),
          .offset = static_cast<size_t>(first * table.row_bytes)};
}

// Reads up to the first row. Fails unless the file has only a tensor "rows" of the right shape.
Status ReadHeader(const Chunk& chunk, ListedFile* file) {
  std::string prefix(std::min<uint64_t>(file->size_bytes(), kSafetensorsPrefixBytes), '\0');
  RETURN_IF_ERROR(file->Read(prefix.data(), prefix.size()));
  ASSIGN_OR_RETURN(uint64_t header_bytes,
                   ParseSafetensorsPrefix(prefix, file->size_bytes(), chunk.file));
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(file->Read(header.data(), header.size()));
  ASSIGN_OR_RETURN(StoredTensors tensors,
                   ParseSafetensorsHeader(header, file->size_bytes(), kChunkAlign, chunk.file));

  for (const auto& [name, tensor] : tensors) {
    if (name != "rows") return Unexpected(chunk.file, name, "tensor");
  }
  const std::vector<uint64_t> shape = {chunk.rows, chunk.row_bytes};
  const auto entry = tensors.find("rows");
  const std::string expected = TensorText(TensorType::kU8, shape);
  if (entry == tensors.end()) return Refusal(chunk.file, "rows", expected, "nothing");
  const StoredTensor& rows = entry->second;
  if (rows.type == TensorType::kU8 && rows.shape == shape) return {};
  return Refusal(chunk.file, "rows", expected, TensorText(rows.type, rows.shape));
}

// Hashes bytes that were read instead of mapped pages, because access to mapped pages would end the
// process if the file is truncated meanwhile. Such a file is refused here.
Status LoadRows(const Chunk& chunk, TableResidency residency, ListedFile* file,
                AddressRange* range) {
  const uint64_t data_start = file->position();
  if (residency == TableResidency::kResident) {
    RETURN_IF_ERROR(file->Read(range->base() + chunk.offset, chunk.data_bytes()));
    return file->CheckDigest();
  }
  RETURN_IF_ERROR(file->Skip());
  RETURN_IF_ERROR(file->CheckDigest());
  RETURN_IF_ERROR(
      range->MapFile(chunk.offset, WholePages(chunk.data_bytes()), file->file(), data_start));
  return file->CheckSize();
}

std::string KeyOf(const Manifest& manifest, const Chunk& chunk, TableResidency residency) {
  return manifest.files.at(chunk.file).sha256 + " " + std::to_string(chunk.rows) + " " +
         std::to_string(chunk.row_bytes) + (residency == TableResidency::kMmap ? " m" : " r");
}

Status CheckAddressable(const TableSpec& table, size_t number) {
  // Cannot overflow: there are at most 2^40 rows of 2^18 bytes.
  if (static_cast<size_t>(table.rows * table.row_bytes) <= kRangeBytesMax) return {};
  return Refusal("manifest.json", "tables." + std::to_string(number) + ".rows",
                 "tables that can be addressed", std::to_string(table.rows));
}

class TableLoad {
 public:
  TableLoad(const PackageFolder& folder, const Manifest& manifest, const TableSpec& table,
            TableResidency residency, LoadedChunks* loaded)
      : folder_(folder), manifest_(manifest), residency_(residency), loaded_(loaded) {
    for (size_t number = 0; number < table.chunks.size(); ++number) {
      chunks_.push_back(ChunkOf(table, number));
      known_.push_back(loaded == nullptr
                           ? LoadedChunk()
                           : loaded->Find(KeyOf(manifest, chunks_[number], residency)));
    }
    bytes_ = WholePages(static_cast<size_t>(table.rows * table.row_bytes));
  }

  Result<std::shared_ptr<const AddressRange>> Run() {
    if (IsKnownWhole()) return known_.front().table;
    ASSIGN_OR_RETURN(AddressRange range, AddressRange::Reserve(bytes_ + PageBytes()));
    const size_t memory_begin = residency_ == TableResidency::kResident ? 0 : bytes_;
    const size_t memory_bytes = bytes_ + PageBytes() - memory_begin;
    RETURN_IF_ERROR(range.MapMemory(memory_begin, memory_bytes));
    for (size_t i = 0; i < chunks_.size(); ++i) {
      RETURN_IF_ERROR(Fill(i, &range));
      if (residency_ == TableResidency::kMmap) {
        range.Populate(chunks_[i].offset, WholePages(chunks_[i].data_bytes()));
      }
    }
    RETURN_IF_ERROR(range.Seal(memory_begin, memory_bytes));
    auto whole = std::make_shared<const AddressRange>(std::move(range));
    for (const Chunk& chunk : chunks_) {
      if (loaded_ == nullptr) break;
      loaded_->Add(KeyOf(manifest_, chunk, residency_), {.table = whole, .offset = chunk.offset});
    }
    return std::shared_ptr<const AddressRange>(std::move(whole));
  }

 private:
  bool IsKnownWhole() const {
    if (known_.empty() || known_.front().table == nullptr) return false;
    const AddressRange* const table = known_.front().table.get();
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (known_[i].table.get() != table || known_[i].offset != chunks_[i].offset) return false;
    }
    return table->size_bytes() == bytes_ + PageBytes();
  }

  Status Fill(size_t number, AddressRange* range) const {
    const Chunk& chunk = chunks_[number];
    const LoadedChunk& known = known_[number];
    if (known.table == nullptr) return Read(chunk, range);
    if (residency_ == TableResidency::kMmap) {
      return range->MapAgain(chunk.offset, WholePages(chunk.data_bytes()), *known.table,
                             known.offset);
    }
    std::memcpy(range->base() + chunk.offset, known.table->base() + known.offset,
                chunk.data_bytes());
    return {};
  }

  Status Read(const Chunk& chunk, AddressRange* range) const {
    ASSIGN_OR_RETURN(ListedFile file, ListedFile::Open(folder_, manifest_, chunk.file));
    RETURN_IF_ERROR(ReadHeader(chunk, &file));
    return LoadRows(chunk, residency_, &file, range);
  }

  const PackageFolder& folder_;
  const Manifest& manifest_;
  const TableResidency residency_;
  LoadedChunks* const loaded_;
  std::vector<Chunk> chunks_;
  std::vector<LoadedChunk> known_;  // One for each chunk.
  size_t bytes_ = 0;                // Rounded up to whole pages.
};

}  // namespace

LoadedChunk LoadedChunks::Find(const std::string& key) const {
  const MutexLock lock(mutex_);
  const auto entry = known_.find(key);
  if (entry == known_.end()) return {};
  return {.table = entry->second.table.lock(), .offset = entry->second.offset};
}

void LoadedChunks::Add(const std::string& key, const LoadedChunk& chunk) {
  const MutexLock lock(mutex_);
  std::erase_if(known_, [](const auto& known) { return known.second.table.expired(); });
  known_.insert_or_assign(key, Known{.table = chunk.table, .offset = chunk.offset});
}

Result<std::unique_ptr<TableStore>> TableStore::Open(const PackageFolder& folder,
                                                     const Manifest& manifest,
                                                     TableResidency residency,
                                                     LoadedChunks* loaded) {
  if (PageBytes() > kChunkAlign) residency = TableResidency::kResident;
  Ranges ranges;
  for (size_t i = 0; i < manifest.tables.size(); ++i) {
    const TableSpec& table = manifest.tables[i];
    RETURN_IF_ERROR(CheckAddressable(table, i));
    ASSIGN_OR_RETURN(auto range, TableLoad(folder, manifest, table, residency, loaded).Run());
    ranges.push_back(std::move(range));
  }
  return std::unique_ptr<TableStore>(new TableStore(std::move(ranges)));
}

}  // namespace embershard
