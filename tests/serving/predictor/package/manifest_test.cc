#include "package/manifest.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "package/golden.h"

namespace embershard {
namespace {

using Json = nlohmann::json;
using testing::EditedManifest;
using testing::GoldenManifest;

TEST(Manifest, HoldsWhatTheGoldenPackageSays) {
  const Manifest manifest = GoldenManifest();
  EXPECT_EQ(manifest.model, "tiny");
  EXPECT_EQ(manifest.version, 1);
  EXPECT_EQ(manifest.program.file, "programs/dense.pt");
  EXPECT_EQ(manifest.program.type, DenseType::kFloat32);
  EXPECT_EQ(manifest.samples, "samples.safetensors");
  EXPECT_EQ(manifest.plans, (std::vector<std::string>{"default", "halves"}));
  EXPECT_EQ(manifest.default_plan, "default");
  EXPECT_EQ(manifest.limits.max_examples, 64U);
  EXPECT_EQ(manifest.limits.max_ids, 1000U);
  EXPECT_EQ(manifest.schema.fingerprint, 0x789cfa4142583ca4U);
  ASSERT_EQ(manifest.tables.size(), 3U);
  const TableSpec& items = manifest.tables[1];
  EXPECT_EQ(items.name, "items");
  EXPECT_EQ(items.rows, 600);
  EXPECT_EQ(items.dim, 8);
  EXPECT_EQ(items.weights, WeightType::kInt4);
  EXPECT_EQ(items.row_bytes, 8);
  EXPECT_EQ(items.rows_per_chunk, 512);
  EXPECT_EQ(items.chunks.size(), 2U);
  EXPECT_EQ(manifest.files.size(), 9U);
}

TEST(Manifest, HoldsTablesWhoseRowsArePaddedToFourColumns) {
  const std::vector<std::tuple<const char*, WeightType, int, int>> cases = {
      {"int8", WeightType::kInt8, 1, 8},   {"int4", WeightType::kInt4, 3, 6},
      {"fp16", WeightType::kFp16, 2, 8},   {"fp32", WeightType::kFp32, 1, 16},
      {"fp32", WeightType::kFp32, 10, 48}, {"fp32", WeightType::kFp32, 65536, 262144}};
  for (const auto& [name, weights, dim, row_bytes] : cases) {
    const Result<Manifest> manifest = ParseManifest(EditedManifest([&](Json& document) {
      Json& table = document["tables"][0];
      table["weights"] = name;
      table["dim"] = dim;
      table["row_bytes"] = row_bytes;
      table["rows_per_chunk"] = 2048;
    }));
    ASSERT_TRUE(manifest.ok()) << manifest.status().message();
    EXPECT_EQ(manifest->tables[0].weights, weights);
    EXPECT_EQ(manifest->tables[0].dim, dim);
    // After users come the tags, of 4 columns.
    EXPECT_EQ(manifest->schema.request_pooled_columns, static_cast<size_t>(dim) + 4);
  }
}

TEST(Manifest, HoldsTheFilesOfCompiledPrograms) {
  const Result<Manifest> manifest = ParseManifest(EditedManifest([](Json& document) {
    document["programs"].push_back({{"kind", "aotinductor"},
                                    {"target", "x86_64-avx2"},
                                    {"dtype", "bfloat16"},
                                    {"torch", "2.13.0"},
                                    {"instructions", {"avx2", "fma"}},
                                    {"file", "programs/dense.pt2"}});
    document["files"]["programs/dense.pt2"] = document["files"]["programs/dense.pt"];
  }));
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(manifest->program.file, "programs/dense.pt");
  EXPECT_EQ(manifest->compiled_programs, std::vector<std::string>{"programs/dense.pt2"});
}

TEST(Manifest, HoldsTheInputsInOrder) {
  const Schema schema = GoldenManifest().schema;
  ASSERT_EQ(schema.dense.size(), 2U);
  EXPECT_EQ(schema.dense[0].scope, Scope::kRequest);
  EXPECT_FALSE(schema.dense[0].default_value.has_value());
  EXPECT_EQ(schema.dense[1].default_value, 0.25F);
  ASSERT_EQ(schema.sparse.size(), 3U);
  const auto& [user, tags, item] = std::tie(schema.sparse[0], schema.sparse[1], schema.sparse[2]);
  EXPECT_EQ(user.ids.kind, IdMapKind::kVocab);
  EXPECT_EQ(user.ids.unknown, UnknownIds::kOov);
  EXPECT_EQ(user.ids.oov_row, 4);
  EXPECT_EQ(user.ids.file, "ids/user.safetensors");
  EXPECT_TRUE(tags.weighted);
  EXPECT_EQ(tags.max_ids, 3U);
  EXPECT_EQ(tags.keep, Keep::kLast);
  EXPECT_EQ(tags.ids.kind, IdMapKind::kHash);
  EXPECT_EQ(tags.ids.seed, 3U);
  EXPECT_EQ(tags.lookups[0].table, 2U);
  EXPECT_EQ(item.scope, Scope::kExample);
  EXPECT_EQ(item.ids.kind, IdMapKind::kIdentity);
  EXPECT_EQ(item.lookups[0].pooling, Pooling::kMean);
  ASSERT_EQ(schema.outputs.size(), 2U);
  EXPECT_EQ(schema.outputs[0].width, 1U);
  EXPECT_EQ(schema.outputs[1].shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(schema.outputs[1].width, 2U);
}

TEST(Manifest, GivesEachScopeColumnsOfItsOwn) {
  const Result<Manifest> manifest = ParseManifest(EditedManifest([](Json& document) {
    // "user" is looked up in two tables: 4 columns of users, then 4 of users again.
    Json lookups = document["inputs"][2]["lookups"];
    lookups.push_back(lookups[0]);
    document["inputs"][2]["lookups"] = lookups;
  }));
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  const Schema& schema = manifest->schema;
  EXPECT_EQ(schema.request_dense_columns, 1U);
  EXPECT_EQ(schema.example_dense_columns, 1U);
  EXPECT_EQ(schema.request_pooled_columns, 12U);
  EXPECT_EQ(schema.example_pooled_columns, 8U);
  EXPECT_EQ(schema.sparse[0].lookups[0].column, 0U);
  EXPECT_EQ(schema.sparse[0].lookups[1].column, 4U);
  EXPECT_EQ(schema.sparse[1].lookups[0].column, 8U);
  EXPECT_EQ(schema.sparse[2].lookups[0].column, 0U);
}

TEST(Manifest, NumbersSequencesInTheOrderOfTheInputs) {
  const Result<Manifest> manifest = ParseManifest(EditedManifest([](Json& document) {
    // "item": pooled as before, and twice a sequence; "user": a sequence alone.
    const Json sequence = {{"table", "items"}, {"output", "sequence"}, {"pooling", nullptr}};
    Json& item = document["inputs"][4]["lookups"];
    item = {sequence, item[0], sequence};
    document["inputs"][2]["lookups"][0].update({{"output", "sequence"}, {"pooling", nullptr}});
  }));
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  const Schema& schema = manifest->schema;
  ASSERT_EQ(schema.sequences.size(), 3U);
  EXPECT_EQ(schema.sequences[0].sparse_input, 0U);
  EXPECT_EQ(schema.sequences[0].table, 0U);
  EXPECT_EQ(schema.sequences[0].scope, Scope::kRequest);
  EXPECT_EQ(schema.sequences[0].dim, 4);
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(schema.sequences[i].sparse_input, 2U);
    EXPECT_EQ(schema.sequences[i].table, 1U);
    EXPECT_EQ(schema.sequences[i].scope, Scope::kExample);
    EXPECT_EQ(schema.sequences[i].dim, 8);
  }
  EXPECT_TRUE(schema.sparse[0].lookups.empty());
  ASSERT_EQ(schema.sparse[2].lookups.size(), 1U);
  EXPECT_EQ(schema.request_pooled_columns, 4U);
  EXPECT_EQ(schema.example_pooled_columns, 8U);
}

TEST(Manifest, TakesTheDigestOfTheNumbersAsTheyAreWritten) {
  const std::string text = EditedManifest([](Json& document) {
    document["inputs"][1]["default"] = 1e-5;
    document["inputs"][0]["default"] = -1;
  });
  const Result<Manifest> manifest = ParseManifest(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(manifest->schema.dense[1].default_value, 1e-5F);
  EXPECT_EQ(manifest->schema.dense[0].default_value, -1.0F);
}

TEST(Manifest, TakesTransforms) {
  const std::string text = EditedManifest([](Json& document) {
    document["inputs"][0]["transforms"] = Json::parse(R"([
        {"kind": "clip", "low": 0, "high": 5e-5}, {"kind": "log1p"},
        {"kind": "standardize", "mean": -0.5, "deviation": 2.0},
        {"kind": "bucketize", "boundaries": [0, 0.25]}])");
  });
  const Result<Manifest> manifest = ParseManifest(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
}

struct BadField {
  const char* name;  // Name of the test case.
  const char* message;
  std::function<void(Json&)> edit;
};

void PrintTo(const BadField& field, std::ostream* out) { *out << field.name; }

class ManifestRefusal : public ::testing::TestWithParam<BadField> {};

TEST_P(ManifestRefusal, NamesTheField) {
  const Result<Manifest> manifest = ParseManifest(EditedManifest(GetParam().edit));
  EXPECT_EQ(manifest.status().code(), StatusCode::kBadPackage);
  EXPECT_EQ(manifest.status().message(), std::string("manifest.json: ") + GetParam().message);
}

// Those whose wording is of one field; tests/hostile holds many more, for every reader.
INSTANTIATE_TEST_SUITE_P(
    Fields, ManifestRefusal,
    ::testing::Values(
        BadField{"unknown_key", "extra: unexpected key", [](Json& d) { d["extra"] = 1; }},
        BadField{"missing_key", "limits.max_ids: missing key",
                 [](Json& d) { d["limits"].erase("max_ids"); }},
        BadField{"another_version_comes_first", "format_version: expected 0 .. 0, got 1",
                 [](Json& d) { d["format_version"] = 1, d["extra"] = 1; }},
        BadField{"no_version_at_all", "format_version: expected an integer, got null",
                 [](Json& d) { d["format_version"] = nullptr; }},
        BadField{"whole_float_for_an_integer", "version: expected an integer, got 1.0",
                 [](Json& d) { d["version"] = 1.0; }},
        BadField{"text_that_cannot_be_shown",
                 "model: expected a name of letters, digits, '_', '.' "
                 "and '-', got \"a\\nb\"",
                 [](Json& d) { d["model"] = "a\nb"; }},
        BadField{"no_row_beside_the_oov_row",
                 "inputs.2.ids.rows: expected a known row beside the "
                 "oov row, got 1",
                 [](Json& d) {
                   d["inputs"][2]["ids"]["rows"] = 1;
                   d["inputs"][2]["ids"]["oov_row"] = 0;
                 }},
        BadField{"file_named_twice",
                 "samples: expected a file of its own, got "
                 "programs/dense.pt, named before",
                 [](Json& d) { d["samples"] = "programs/dense.pt"; }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Manifest, RefusesTheFingerprintOfOtherInputs) {
  std::string text = testing::ReadFile(testing::GoldenFolder() / "manifest.json");
  text.replace(text.find("789cfa4142583ca4"), 16, "789cfa4142583ca5");
  EXPECT_EQ(ParseManifest(text).status().message(),
            "manifest.json: schema: expected 789cfa4142583ca4, got 789cfa4142583ca5");
}

}  // namespace
}  // namespace embershard
