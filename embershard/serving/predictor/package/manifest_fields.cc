#include "package/manifest_fields.h"

#include <algorithm>
#include <functional>

#include "package/names.h"

namespace embershard {
namespace {

constexpr int64_t kFormatVersion = 0;
constexpr int64_t kRowsMax = int64_t{1} << 40;  // Maximum rows of one table.
constexpr int64_t kDimMax = 1 << 16;
constexpr int64_t kChunkAlign = 4096;
constexpr int64_t kChunkBytesMax = int64_t{1} << 30;
constexpr double kNumberLimit = 1e15;  // Readers write smaller numbers with the same digits.
constexpr double kDeviationMin = 1e-15;

void CheckError(const JsonValue& value) {
  if (value.Number() < 0) value.Refuse("at least 0");
}

void CheckLayout(const TableSpec& table, const JsonValue& value) {
  const auto row_bytes = static_cast<int64_t>(
      ColumnByte(table.weights, StoredColumns(static_cast<size_t>(table.dim))));
  if (table.row_bytes != row_bytes) value["row_bytes"].Refuse(std::to_string(row_bytes));

  // Cannot overflow: there are at most 2^30 rows of at most 2^18 bytes.
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

std::string ReadInputName(const JsonValue& value) {
  return value.TextThat(IsInputName, "1 .. 256 bytes without control characters");
}

Scope ReadScope(const JsonValue& value) {
  return value.Choice<Scope>({{"request", Scope::kRequest}, {"example", Scope::kExample}});
}

double ReadNumber(const JsonValue& value) {
  const double number = value.Number();
  if (number <= -kNumberLimit || number >= kNumberLimit) {
    value.Refuse("a number between -1e15 and 1e15");
  }
  return number;
}

void CheckBoundaries(const JsonValue& value) {
  std::vector<double> boundaries;
  for (const JsonValue& boundary : value.Elements(1)) boundaries.push_back(ReadNumber(boundary));
  const auto bad = std::adjacent_find(boundaries.begin(), boundaries.end(), std::greater_equal<>());
  if (bad != boundaries.end()) {
    value.Refuse("strictly increasing numbers");
  }
}

// Only checks the transforms, because the dense program applies them.
void CheckTransform(const JsonValue& value) {
  enum class Kind { kLog1p, kClip, kStandardize, kBucketize };
  if (!value.ExpectObject()) return;
  switch (value["kind"].Choice<Kind>({{"log1p", Kind::kLog1p},
                                      {"clip", Kind::kClip},
                                      {"standardize", Kind::kStandardize},
                                      {"bucketize", Kind::kBucketize}})) {
    case Kind::kLog1p:
      value.ExpectKeys({"kind"});
      break;
    case Kind::kClip:
      value.ExpectKeys({"kind", "low", "high"});
      if (ReadNumber(value["low"]) >= ReadNumber(value["high"])) value.Refuse("low below high");
      break;
    case Kind::kStandardize:
      value.ExpectKeys({"kind", "mean", "deviation"});
      ReadNumber(value["mean"]);
      if (ReadNumber(value["deviation"]) < kDeviationMin) {
        value["deviation"].Refuse("at least 1e-15");
      }
      break;
    case Kind::kBucketize:
      value.ExpectKeys({"kind", "boundaries"});
      CheckBoundaries(value["boundaries"]);
      break;
  }
}

DenseInput ReadDense(const JsonValue& value) {
  if (value.Has("transforms")) {
    value.ExpectKeys({"kind", "name", "scope", "default", "transforms"});
    for (const JsonValue& transform : value["transforms"].Elements(1)) CheckTransform(transform);
  } else {
    value.ExpectKeys({"kind", "name", "scope", "default"});
  }
  DenseInput input;
  input.name = ReadInputName(value["name"]);
  input.scope = ReadScope(value["scope"]);
  const JsonValue default_value = value["default"];
  if (!default_value.is_null()) {
    input.default_value = static_cast<float>(ReadNumber(default_value));
  }
  return input;
}

void ReadUnknown(const JsonValue& value, IdMapSpec* ids) {
  ids->unknown = value["unknown"].Choice<UnknownIds>(
      {{"reject", UnknownIds::kReject}, {"oov", UnknownIds::kOov}, {"zero", UnknownIds::kZero}});
  const JsonValue oov_row = value["oov_row"];
  if (ids->unknown != UnknownIds::kOov) {
    if (!oov_row.is_null()) oov_row.Refuse("null where unknown is not oov");
    return;
  }
  ids->oov_row = ids->rows - 1;
  if (oov_row.is_null() || oov_row.Integer(0, INT64_MAX) != ids->oov_row) {
    oov_row.Refuse(std::to_string(ids->oov_row) + " where unknown is oov");
  }
  if (ids->rows == 1) value["rows"].Refuse("a known row beside the oov row");
}

IdMapSpec ReadIds(const JsonValue& value) {
  IdMapSpec ids;
  if (!value.ExpectObject()) return ids;
  ids.kind = value["kind"].Choice<IdMapKind>({{"identity", IdMapKind::kIdentity},
                                              {"hash", IdMapKind::kHash},
                                              {"vocab", IdMapKind::kVocab}});
  ids.rows = value["rows"].Integer(1, kRowsMax);
  switch (ids.kind) {
    case IdMapKind::kIdentity:
      value.ExpectKeys({"kind", "rows", "unknown", "oov_row"});
      ReadUnknown(value, &ids);
      break;
    case IdMapKind::kHash:
      value.ExpectKeys({"kind", "rows", "seed"});
      ids.seed = value["seed"].Unsigned(0, UINT64_MAX);
      break;
    case IdMapKind::kVocab:
      value.ExpectKeys({"kind", "rows", "file", "unknown", "oov_row"});
      ids.file = ReadFilePath(value["file"]);
      ReadUnknown(value, &ids);
      break;
  }
  return ids;
}

// The ids must have as many rows as the table that the lookup names.
size_t ReadLookupTable(const JsonValue& value, const std::vector<TableSpec>& tables,
                       const IdMapSpec& ids, const JsonValue& rows) {
  const std::string name = ReadPlainName(value["table"]);
  const auto table = std::find_if(tables.begin(), tables.end(),
                                  [&](const TableSpec& table) { return table.name == name; });
  if (table == tables.end()) {
    value["table"].Refuse("the name of a table");
    return 0;
  }
  if (ids.rows != table->rows) {
    rows.Refuse(std::to_string(table->rows) + ", the rows of table " + name);
  }
  return static_cast<size_t>(table - tables.begin());
}

void ReadLookup(const JsonValue& input, const JsonValue& value,
                const std::vector<TableSpec>& tables, SparseInput* read) {
  value.ExpectKeys({"table", "output", "pooling"});
  const bool pooled = value["output"].Choice<bool>({{"pooled", true}, {"sequence", false}});
  const JsonValue pooling = value["pooling"];
  const size_t table = ReadLookupTable(value, tables, read->ids, input["ids"]["rows"]);
  if (!pooled) {
    if (!pooling.is_null()) pooling.Refuse("null where output is sequence");
    if (read->weighted) input["weighted"].Refuse("false where a lookup's output is sequence");
    read->sequence_tables.push_back(table);
    return;
  }
  read->lookups.push_back(
      {.table = table,
       .pooling = pooling.Choice<Pooling>({{"sum", Pooling::kSum}, {"mean", Pooling::kMean}}),
       .column = 0});
}

SparseInput ReadSparse(const JsonValue& value, const std::vector<TableSpec>& tables) {
  value.ExpectKeys({"kind", "name", "scope", "weighted", "max_ids", "keep", "ids", "lookups"});
  SparseInput input;
  input.name = ReadInputName(value["name"]);
  input.scope = ReadScope(value["scope"]);
  input.weighted = value["weighted"].Boolean();
  input.max_ids = static_cast<uint32_t>(value["max_ids"].Integer(0, kLengthMax));
  input.keep = value["keep"].Choice<Keep>(
      {{"reject", Keep::kReject}, {"first", Keep::kFirst}, {"last", Keep::kLast}});
  input.ids = ReadIds(value["ids"]);
  for (const JsonValue& lookup : value["lookups"].Elements(1)) {
    ReadLookup(value, lookup, tables, &input);
  }
  return input;
}

OutputSpec ReadOutput(const JsonValue& value) {
  value.ExpectKeys({"name", "scope", "shape"});
  OutputSpec output;
  output.name = ReadInputName(value["name"]);
  output.scope = ReadScope(value["scope"]);
  for (const JsonValue& size : value["shape"].Elements()) {
    output.shape.push_back(size.Integer(1, kLengthMax));
    output.width *= static_cast<size_t>(output.shape.back());
    if (output.width > static_cast<size_t>(kLengthMax)) {
      value["shape"].Refuse("at most 2147483647 values");
      output.width = 1;
    }
  }
  return output;
}

// Assigns each input its columns in the dense program's four matrices, and orders the sequences.
void AssignPlaces(const std::vector<TableSpec>& tables, Schema* schema) {
  for (DenseInput& input : schema->dense) {
    size_t& columns = input.scope == Scope::kRequest ? schema->request_dense_columns
                                                     : schema->example_dense_columns;
    input.column = columns++;
  }
  for (SparseInput& input : schema->sparse) {
    size_t& columns = input.scope == Scope::kRequest ? schema->request_pooled_columns
                                                     : schema->example_pooled_columns;
    for (LookupSpec& lookup : input.lookups) {
      lookup.column = columns;
      if (lookup.table < tables.size()) columns += static_cast<size_t>(tables[lookup.table].dim);
    }
    for (const size_t table : input.sequence_tables) {
      if (table >= tables.size()) continue;  // Already refused.
      schema->sequences.push_back(
          {.sparse_input = static_cast<size_t>(&input - schema->sparse.data()),
           .table = table,
           .scope = input.scope,
           .dim = tables[table].dim});
    }
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

void ReadSchema(const JsonValue& inputs, const JsonValue& outputs,
                const std::vector<TableSpec>& tables, Schema* schema) {
  const std::vector<JsonValue> elements = inputs.Elements(1);
  for (const JsonValue& input : elements) {
    if (!input.ExpectObject()) continue;
    const bool dense = input["kind"].Choice<bool>({{"dense", true}, {"sparse", false}});
    if (!dense) {
      schema->sparse.push_back(ReadSparse(input, tables));
      continue;
    }
    if (!schema->sparse.empty()) {
      elements[schema->dense.size()]["kind"].Refuse("dense (dense inputs first)");
    }
    schema->dense.push_back(ReadDense(input));
  }
  for (const JsonValue& output : outputs.Elements(1)) {
    schema->outputs.push_back(ReadOutput(output));
  }
  AssignPlaces(tables, schema);
}

}  // namespace embershard
