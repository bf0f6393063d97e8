#include "package/manifest_fields.h"

#include "package/names.h"

namespace embershard {
namespace {

constexpr int64_t kFormatVersion = 0;
constexpr int64_t kDimMax = 1 << 16;
constexpr int64_t kChunkAlign = 4096;
constexpr int64_t kChunkBytesMax = int64_t{1} << 30;

void CheckError(const JsonValue& value) {
  if (value.Number() < 0) value.Refuse("at least 0");
}

void CheckLayout(const TableSpec& table, const JsonValue& value) {
  const auto row_bytes = static_cast<int64_t>(
      ColumnByte(table.weights, StoredColumns(static_cast<size_t>(table.dim))));
  if (table.row_bytes != row_bytes) value["row_bytes"].Refuse(std::to_string(row_bytes));

  // At most 2^30 rows of at most 2^18 bytes: no overflow.
  const int64_t chunk_bytes = table.rows_per_chunk * row_bytes;
  if (chunk_bytes % kChunkAlign != 0 || chunk_bytes > kChunkBytesMax) {
    value["rows_per_chunk"].Refuse(
        "rows of " + std::to_string(row_bytes) +
            " bytes that fill a multiple of 4096 bytes, at most " + std::to_string(kChunkBytesMax),
        std::to_string(table.rows_per_chunk) + " rows, " + std::to_string(chunk_bytes) + " bytes");
  }
  const auto chunks =
      static_cast<size_t>((table.rows + table.rows_per_chunk - 1) / table.rows_per_chunk);
  if (table.chunks.size() != chunks) {
    value["chunks"].Refuse(std::to_string(chunks) + " files", std::to_string(table.chunks.size()));
  }
}

}  // namespace

void CheckFormatVersion(const JsonValue& root) {
  if (root.Has("format_version")) root["format_version"].Integer(kFormatVersion, kFormatVersion);
}

std::string ReadPlainName(const JsonValue& value) {
  return value.TextThat(IsPlainName, "a name of letters, digits, '_', '.' and '-'");
}

std::string ReadFilePath(const JsonValue& value) {
  return value.TextThat(IsFilePath, "a path inside the package");
}

std::string ReadInputName(const JsonValue& value) {
  return value.TextThat(IsInputName, "1 .. 256 bytes without control characters");
}

Scope ReadScope(const JsonValue& value) {
  return value.Choice<Scope>({{"request", Scope::kRequest}, {"example", Scope::kExample}});
}

TableSpec ReadTable(const JsonValue& value) {
  value.ExpectKeys({"name", "rows", "dim", "weights", "row_bytes", "rows_per_chunk", "chunks",
                    "mse", "max_error"});
  TableSpec table;
  table.name = ReadPlainName(value["name"]);
  table.rows = value["rows"].Integer(1, kRowsMax);
  table.dim = value["dim"].Integer(1, kDimMax);
  table.weights = value["weights"].Choice<WeightType>({{"int8", WeightType::kInt8},
                                                       {"int4", WeightType::kInt4},
                                                       {"fp16", WeightType::kFp16},
                                                       {"fp32", WeightType::kFp32}});
  table.row_bytes = value["row_bytes"].Integer(1, INT64_MAX);
  table.rows_per_chunk = value["rows_per_chunk"].Integer(1, kChunkBytesMax);
  for (const JsonValue& chunk : value["chunks"].Elements(1)) {
    table.chunks.push_back(ReadFilePath(chunk));
  }
  CheckError(value["mse"]);
  CheckError(value["max_error"]);
  CheckLayout(table, value);
  return table;
}

}  // namespace embershard
