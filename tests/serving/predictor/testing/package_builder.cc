#include "testing/package_builder.h"

#include <openssl/sha.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace embershard::testing {
namespace {

using nlohmann::json;

constexpr int64_t kPageBytes = 4096;

const char* Text(Scope scope) { return scope == Scope::kRequest ? "request" : "example"; }
const char* Text(Pooling pooling) { return pooling == Pooling::kSum ? "sum" : "mean"; }
const char* Text(WeightType weights) {
  switch (weights) {
    case WeightType::kInt8:
      return "int8";
    case WeightType::kInt4:
      return "int4";
    case WeightType::kFp16:
      return "fp16";
    case WeightType::kFp32:
      return "fp32";
  }
  throw std::logic_error("unknown weight type");
}

std::string HexSha256(const std::string& bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  std::string hex;
  for (const unsigned char byte : digest) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    hex += two;
  }
  return hex;
}

std::string Fingerprint(const json& inputs, const json& outputs) {
  const std::string canonical = json{{"inputs", inputs}, {"outputs", outputs}}.dump();
  char hex[17];
  std::snprintf(hex, sizeof(hex), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(canonical.data(), canonical.size())));
  return hex;
}

std::string Zeros(size_t values, size_t value_bytes) {
  return std::string(values * value_bytes, '\0');
}

size_t CountOfScope(const std::vector<json>& inputs, const char* scope) {
  return static_cast<size_t>(
      std::count_if(inputs.begin(), inputs.end(),
                    [scope](const json& input) { return input["scope"] == scope; }));
}

}  // namespace

void PackageBuilder::AddTable(const TestTable& table) { tables_.push_back(table); }

void PackageBuilder::AddDense(const std::string& name, Scope scope) {
  dense_.push_back(
      {{"kind", "dense"}, {"name", name}, {"scope", Text(scope)}, {"default", nullptr}});
}

void PackageBuilder::AddSparse(const std::string& name, Scope scope, bool weighted,
                               const std::vector<TestLookup>& lookups) {
  const auto table = std::find_if(
      tables_.begin(), tables_.end(),
      [&lookups](const TestTable& table) { return table.name == lookups.front().table; });
  json specs = json::array();
  for (const TestLookup& lookup : lookups) {
    specs.push_back({{"table", lookup.table},
                     {"output", lookup.sequence ? "sequence" : "pooled"},
                     {"pooling", lookup.sequence ? json() : json(Text(lookup.pooling))}});
  }
  sparse_.push_back(
      {{"kind", "sparse"},
       {"name", name},
       {"scope", Text(scope)},
       {"weighted", weighted},
       {"max_ids", 0},
       {"keep", "reject"},
       {"ids",
        {{"kind", "identity"}, {"rows", table->rows}, {"unknown", "reject"}, {"oov_row", nullptr}}},
       {"lookups", specs}});
}

void PackageBuilder::AddOutput(const std::string& name, Scope scope,
                               const std::vector<int64_t>& shape) {
  outputs_.push_back({{"name", name}, {"scope", Text(scope)}, {"shape", shape}});
}

void PackageBuilder::AddPlan(const std::string& name, const std::vector<std::string>& devices,
                             const std::vector<size_t>& device_of_table) {
  json shards = json::array();
  for (size_t i = 0; i < tables_.size(); ++i) {
    shards.push_back({{"table", tables_[i].name},
                      {"rows", {0, tables_[i].rows}},
                      {"columns", {0, tables_[i].dim}},
                      {"devices", {device_of_table[i]}}});
  }
  AddPlanOfShards(name, devices, shards);
}

void PackageBuilder::AddPlanOfShards(const std::string& name,
                                     const std::vector<std::string>& devices, const json& shards) {
  plans_.push_back(
      {{"format_version", 0}, {"name", name}, {"devices", devices}, {"shards", shards}});
}

void PackageBuilder::Write(const std::filesystem::path& folder) {
  folder_ = folder;
  if (plans_.empty()) AddPlan("default", {"cpu:0"}, std::vector<size_t>(tables_.size(), 0));
  for (const TestTable& table : tables_) WriteTable(table);
  for (const json& plan : plans_) {
    WriteFile("plans/" + plan["name"].get<std::string>() + ".json", plan.dump());
  }
  WriteFile("programs/dense.pt", program_);
  WriteSample();
  WriteManifest();
}

void PackageBuilder::WriteFile(const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories((folder_ / name).parent_path());
  std::ofstream(folder_ / name, std::ios::binary) << bytes;
  files_[name] = {{"bytes", bytes.size()}, {"sha256", HexSha256(bytes)}};
}

// u64 header length, header (JSON, padded with spaces up to `align`), tensors.
void PackageBuilder::WriteSafetensors(const std::string& name, size_t align,
                                      const std::vector<Tensor>& tensors) {
  json header = json::object();
  std::string data;
  for (const Tensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  while ((8 + text.size()) % align != 0) text += ' ';
  std::string length;
  for (int shift = 0; shift < 64; shift += 8) {
    length += static_cast<char>((static_cast<uint64_t>(text.size()) >> shift) & 0xff);
  }
  WriteFile(name, length + text + data);
}

// Writes the smallest chunks that the format allows.
void PackageBuilder::WriteTable(const TestTable& table) {
  const int64_t chunk_rows = kPageBytes / std::gcd(kPageBytes, table.row_bytes);
  json chunks = json::array();
  for (int64_t first = 0; first < table.rows; first += chunk_rows) {
    const int64_t rows = std::min(chunk_rows, table.rows - first);
    char file[16];
    std::snprintf(file, sizeof(file), "%05zu", chunks.size());
    chunks.push_back("tables/" + table.name + "/" + file + ".safetensors");
    WriteSafetensors(
        chunks.back(), kPageBytes,
        {{.name = "rows",
          .dtype = "U8",
          .shape = {rows, table.row_bytes},
          .bytes = {reinterpret_cast<const char*>(table.bytes.data()) + first * table.row_bytes,
                    static_cast<size_t>(rows * table.row_bytes)}}});
  }
  table_specs_.push_back({{"name", table.name},
                          {"rows", table.rows},
                          {"dim", table.dim},
                          {"weights", Text(table.weights)},
                          {"row_bytes", table.row_bytes},
                          {"rows_per_chunk", chunk_rows},
                          {"chunks", chunks},
                          {"mse", 0.0},
                          {"max_error", 0.0}});
}

// One request of one example: zeros, empty lists, and zeros for an answer.
void PackageBuilder::WriteSample() {
  const size_t request_dense = CountOfScope(dense_, "request");
  const size_t example_dense = CountOfScope(dense_, "example");
  std::vector<Tensor> tensors = {
      {"0/request_dense", "F32", {static_cast<int64_t>(request_dense)}, Zeros(request_dense, 4)},
      {"0/example_dense", "F32", {1, static_cast<int64_t>(example_dense)}, Zeros(example_dense, 4)},
      {"0/lengths", "I32", {static_cast<int64_t>(sparse_.size())}, Zeros(sparse_.size(), 4)},
      {"0/values", "I64", {0}, ""},
      {"0/weights", "F32", {0}, ""},
  };
  for (const json& output : outputs_) {
    std::vector<int64_t> shape = {1};
    size_t values = 1;
    for (const int64_t size : output["shape"].get<std::vector<int64_t>>()) {
      shape.push_back(size);
      values *= static_cast<size_t>(size);
    }
    tensors.push_back(
        {"0/output/" + output["name"].get<std::string>(), "F32", shape, Zeros(values, 4)});
  }
  WriteSafetensors("samples.safetensors", 8, tensors);
}

void PackageBuilder::WriteManifest() {
  json inputs = json::array();
  for (const json& input : dense_) inputs.push_back(input);
  for (const json& input : sparse_) inputs.push_back(input);
  json plans = json::array();
  for (const json& plan : plans_) plans.push_back(plan["name"]);
  const json outputs(outputs_);
  const json manifest = {
      {"format_version", 0},
      {"model", "test"},
      {"version", 1},
      {"producer", {{"embershard", "0.1.0"}, {"torch", "none"}, {"fbgemm_gpu", "none"}}},
      {"schema", Fingerprint(inputs, outputs)},
      {"inputs", inputs},
      {"outputs", outputs},
      {"tables", table_specs_},
      {"programs",
       {{{"kind", "torchscript"},
         {"target", "cpu"},
         {"dtype", "float32"},
         {"file", "programs/dense.pt"}}}},
      {"plans", plans},
      {"default_plan", plans.front()},
      {"limits", {{"max_examples", 4096}, {"max_ids", 1 << 20}}},
      {"samples", "samples.safetensors"},
      {"files", files_},
  };
  const std::string text = manifest.dump(1);
  WriteFile("manifest.json", text);
  WriteFile("manifest.sha256", HexSha256(text) + "  manifest.json\n");
}

}  // namespace embershard::testing
