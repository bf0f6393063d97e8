#include "package/tables.h"

#include <algorithm>
#include <string>
#include <utility>

#include "package/folder.h"
#include "package/listed_file.h"
#include "package/refusal.h"
#include "package/safetensors.h"

namespace embershard {
namespace {

constexpr size_t kChunkAlign = 4096;

// More than any processor of today can address.
constexpr size_t kRangeBytesMax = size_t{1} << 56;

size_t WholePages(size_t bytes) { return (bytes + PageBytes() - 1) / PageBytes() * PageBytes(); }

// One chunk on its way from its file into the range.
struct Chunk {
  const std::string& file;
  uint64_t rows;
  uint64_t row_bytes;
  size_t offset;  // Into the range.

  size_t data_bytes() const { return rows * row_bytes; }
};

Chunk ChunkOf(const TableSpec& table, size_t number, size_t table_offset) {
  const auto first = static_cast<int64_t>(number) * table.rows_per_chunk;
  const int64_t rows = std::min(table.rows_per_chunk, table.rows - first);
  return {.file = table.chunks[number],
          .rows = static_cast<uint64_t>(rows),
          .row_bytes = static_cast<uint64_t>(table.row_bytes),
          .offset = table_offset + static_cast<size_t>(first * table.row_bytes)};
}

// Reads up to the first row. Refuses anything but one tensor "rows" of the right shape.
Status ReadHeader(const Chunk& chunk, ListedFile* file) {
  std::string prefix(std::min<uint64_t>(file->size_bytes(), kSafetensorsPrefixBytes), '\0');
  if (Status status = file->Read(prefix.data(), prefix.size()); !status.ok()) return status;
  Result<uint64_t> header_bytes = ParseSafetensorsPrefix(prefix, file->size_bytes(), chunk.file);
  if (!header_bytes.ok()) return header_bytes.status();
  std::string header(*header_bytes, '\0');
  if (Status status = file->Read(header.data(), header.size()); !status.ok()) return status;
  Result<StoredTensors> tensors =
      ParseSafetensorsHeader(header, file->size_bytes(), kChunkAlign, chunk.file);
  if (!tensors.ok()) return tensors.status();

  for (const auto& [name, tensor] : *tensors) {
    if (name != "rows") return Refusal(chunk.file, name, "no such tensor", "one");
  }
  const std::vector<uint64_t> shape = {chunk.rows, chunk.row_bytes};
  const auto found = tensors->find("rows");
  const std::string expected = TensorText(TensorType::kU8, shape);
  if (found == tensors->end()) return Refusal(chunk.file, "rows", expected, "nothing");
  const StoredTensor& rows = found->second;
  if (rows.type == TensorType::kU8 && rows.shape == shape) return {};
  return Refusal(chunk.file, "rows", expected, TensorText(rows.type, rows.shape));
}

// Reads the rows themselves. Mapping comes after hashing, from reads: a file cut short in
// between is refused here, where touching its pages would end the process.
Status LoadRows(const Chunk& chunk, TableResidency residency, ListedFile* file,
                AddressRange* range) {
  const uint64_t data_start = file->position();
  if (residency == TableResidency::kResident) {
    Status status = file->Read(range->base() + chunk.offset, chunk.data_bytes());
    return status.ok() ? file->CheckDigest() : status;
  }
  if (Status status = file->Skip(); !status.ok()) return status;
  if (Status status = file->CheckDigest(); !status.ok()) return status;
  Status status =
      range->MapFile(chunk.offset, WholePages(chunk.data_bytes()), file->file(), data_start);
  return status.ok() ? file->CheckSize() : status;
}

// Where each table begins, and where the last one ends.
Result<std::vector<size_t>> LayOut(const Manifest& manifest) {
  std::vector<size_t> offsets = {0};
  for (size_t i = 0; i < manifest.tables.size(); ++i) {
    const TableSpec& table = manifest.tables[i];
    // At most 2^40 rows of 2^17 bytes: no overflow.
    const auto bytes = static_cast<size_t>(table.rows * table.row_bytes);
    if (bytes > kRangeBytesMax - offsets.back()) {
      return Refusal("manifest.json", "tables." + std::to_string(i) + ".rows",
                     "tables that can be addressed", std::to_string(table.rows));
    }
    offsets.push_back(offsets.back() + WholePages(bytes));
  }
  return offsets;
}

}  // namespace

Result<std::unique_ptr<TableStore>> TableStore::Open(const std::filesystem::path& path,
                                                     const Manifest& manifest,
                                                     TableResidency residency) {
  Result<PackageFolder> folder = PackageFolder::Open(path);
  if (!folder.ok()) return folder.status();
  Result<std::vector<size_t>> offsets = LayOut(manifest);
  if (!offsets.ok()) return offsets.status();
  const size_t tables_bytes = offsets->back();
  Result<AddressRange> range = AddressRange::Reserve(tables_bytes + PageBytes());
  if (!range.ok()) return range.status();

  if (PageBytes() > kChunkAlign) residency = TableResidency::kResident;
  const size_t memory_begin = residency == TableResidency::kResident ? 0 : tables_bytes;
  const size_t memory_bytes = tables_bytes + PageBytes() - memory_begin;
  if (Status status = range->MapMemory(memory_begin, memory_bytes); !status.ok()) return status;
  for (size_t i = 0; i < manifest.tables.size(); ++i) {
    for (size_t number = 0; number < manifest.tables[i].chunks.size(); ++number) {
      const Chunk chunk = ChunkOf(manifest.tables[i], number, (*offsets)[i]);
      Result<ListedFile> file = ListedFile::Open(*folder, manifest, chunk.file);
      if (!file.ok()) return file.status();
      if (Status status = ReadHeader(chunk, &*file); !status.ok()) return status;
      Status status = LoadRows(chunk, residency, &*file, &*range);
      if (!status.ok()) return status;
    }
  }
  if (Status status = range->Seal(memory_begin, memory_bytes); !status.ok()) return status;

  std::unique_ptr<TableStore> store(new TableStore());
  store->range_ = std::move(*range);
  offsets->pop_back();
  store->offsets_bytes_ = std::move(*offsets);
  return store;
}

}  // namespace embershard
