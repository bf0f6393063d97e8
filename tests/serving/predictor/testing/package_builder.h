// Writes packages of format 0 (docs/format.md), byte by byte and without the code
// under test.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "package/manifest.h"
#include "testing/test_table.h"

namespace embershard::testing {

struct TestLookup {
  std::string table;
  Pooling pooling = Pooling::kSum;  // Ignored for a sequence.
  bool sequence = false;
};

// Calls in the order of the manifest: tables first, then dense inputs, sparse ones,
// outputs, plans. Without a plan, Write() puts every table on "cpu:0".
class PackageBuilder {
 public:
  void AddTable(const TestTable& table);
  void AddDense(const std::string& name, Scope scope);

  // Ids are rows of the looked-up tables (identity).
  void AddSparse(const std::string& name, Scope scope, bool weighted,
                 const std::vector<TestLookup>& lookups);
  void AddOutput(const std::string& name, Scope scope, const std::vector<int64_t>& shape);

  // The first plan is the default. `device_of_table` counts tables in their order.
  void AddPlan(const std::string& name, const std::vector<std::string>& devices,
               const std::vector<size_t>& device_of_table);

  // A plan whose shards are written by hand: {"table", "rows", "columns", "devices"}.
  void AddPlanOfShards(const std::string& name, const std::vector<std::string>& devices,
                       const nlohmann::json& shards);

  void SetProgram(std::string bytes) { program_ = std::move(bytes); }

  // Into `folder`, which must be there and be empty.
  void Write(const std::filesystem::path& folder);

 private:
  struct Tensor {
    std::string name;
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };

  void WriteFile(const std::string& name, const std::string& bytes);
  void WriteSafetensors(const std::string& name, size_t align, const std::vector<Tensor>& tensors);
  void WriteTable(const TestTable& table);
  void WriteSample();
  void WriteManifest();

  std::vector<TestTable> tables_;
  std::vector<nlohmann::json> dense_;
  std::vector<nlohmann::json> sparse_;
  std::vector<nlohmann::json> outputs_;
  std::vector<nlohmann::json> plans_;
  std::string program_ = "not a program";

  std::filesystem::path folder_;
  nlohmann::json table_specs_ = nlohmann::json::array();
  nlohmann::json files_ = nlohmann::json::object();
};

}  // namespace embershard::testing
