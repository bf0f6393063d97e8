// The checked content of manifest.json. docs/format.md describes the format.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/row_layout.h"

namespace embershard {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kManifestDigestFile = "manifest.sha256";

enum class Scope { kExample, kRequest };
enum class Pooling { kSum, kMean };
enum class Keep { kFirst, kLast, kReject };
enum class UnknownIds { kReject, kOov, kZero };
enum class IdMapKind { kIdentity, kHash, kVocab };
enum class DenseType { kFloat32, kBfloat16 };

struct IdMapSpec {
  IdMapKind kind = IdMapKind::kIdentity;
  int64_t rows = 0;                          // Rows of the table, including the oov row.
  UnknownIds unknown = UnknownIds::kReject;  // Only for identity and vocab.
  int64_t oov_row = -1;                      // Only if unknown is kOov.
  uint64_t seed = 0;                         // Only for hash.
  std::string file;                          // Only for vocab.
};

struct LookupSpec {
  size_t table = 0;  // Position in Manifest::tables.
  Pooling pooling = Pooling::kSum;
  size_t column = 0;  // First column of its vector in its scope's pooled matrix.
};

struct DenseInput {
  std::string name;
  Scope scope = Scope::kExample;
  std::optional<float> default_value;  // Absent if the input is required.
  size_t column = 0;                   // Column in its scope's dense matrix.
};

struct SparseInput {
  std::string name;
  Scope scope = Scope::kExample;
  bool weighted = false;
  IdMapSpec ids;
  uint32_t max_ids = 0;  // Per list. 0: no limit.
  Keep keep = Keep::kReject;
  std::vector<LookupSpec> lookups;      // Pooled lookups.
  std::vector<size_t> sequence_tables;  // Positions in Manifest::tables. See Schema::sequences.
};

// A sparse input that is looked up in one table without pooling, with one vector per id.
struct SequenceSpec {
  size_t sparse_input = 0;  // Position in Schema::sparse.
  size_t table = 0;         // Position in Manifest::tables.
  Scope scope = Scope::kExample;
  int64_t dim = 0;
};

struct OutputSpec {
  std::string name;
  Scope scope = Scope::kExample;
  std::vector<int64_t> shape;  // Excludes the first dimension.
  size_t width = 1;            // Product of shape.
};

// Inputs and outputs of a model, each list in the order of the manifest.
struct Schema {
  std::vector<DenseInput> dense;
  std::vector<SparseInput> sparse;
  std::vector<OutputSpec> outputs;

  // Order of the dense program's inputs: by sparse input, then by lookup.
  std::vector<SequenceSpec> sequences;

  uint64_t fingerprint = 0;

  size_t request_dense_columns = 0;
  size_t example_dense_columns = 0;
  size_t request_pooled_columns = 0;
  size_t example_pooled_columns = 0;
};

struct TableSpec {
  std::string name;
  int64_t rows = 0;
  int64_t dim = 0;
  WeightType weights = WeightType::kInt8;
  int64_t row_bytes = 0;
  int64_t rows_per_chunk = 0;
  std::vector<std::string> chunks;
};

struct FileSpec {
  uint64_t bytes = 0;
  std::string sha256;  // 64 hex digits.
};

// Target of the TorchScript program in the manifest. Any CPU runs it.
inline constexpr std::string_view kTorchScriptTarget = "cpu";

struct ProgramSpec {
  DenseType type = DenseType::kFloat32;  // Data type of its linear layers.
  std::string file;
};

struct Limits {
  uint32_t max_examples = 0;  // Per request.
  uint64_t max_ids = 0;       // Per request, for all lists together.
};

struct Manifest {
  std::string model;
  int64_t version = 0;
  Schema schema;
  std::vector<TableSpec> tables;
  ProgramSpec program;
  std::vector<std::string> compiled_programs;  // Programs of earlier versions: verified, not run.
  std::vector<std::string> plans;
  std::string default_plan;
  Limits limits;
  std::string samples;
  std::map<std::string, FileSpec> files;
};

// Parses and checks the text of manifest.json. Errors are kBadPackage and name the field:
// "manifest.json: inputs.3.ids.rows: expected 944, got 943".
Result<Manifest> ParseManifest(std::string_view json);

}  // namespace embershard
