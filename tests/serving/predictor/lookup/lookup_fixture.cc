#include "lookup/lookup_fixture.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

namespace embershard::testing {
namespace {

std::unique_ptr<Package> Open(PackageBuilder builder, const std::filesystem::path& folder,
                              const PackageOptions& options) {
  builder.Write(folder);
  auto package = Package::Open(folder, options);
  if (!package.ok()) throw std::runtime_error(package.status().message());
  return std::move(*package);
}

// The lists of one input, merged.
struct Merged {
  std::vector<int64_t> rows;
  std::vector<int64_t> offsets = {0};
  std::vector<float> weights;
};

Merged Merge(const std::vector<Bag>& bags) {
  Merged merged;
  for (const Bag& bag : bags) {
    merged.rows.insert(merged.rows.end(), bag.rows.begin(), bag.rows.end());
    merged.weights.insert(merged.weights.end(), bag.weights.begin(), bag.weights.end());
    merged.offsets.push_back(static_cast<int64_t>(merged.rows.size()));
  }
  return merged;
}

}  // namespace

nlohmann::json ShardOf(const std::string& table, int64_t row_begin, int64_t row_end,
                       int64_t column_begin, int64_t column_end,
                       const std::vector<size_t>& devices) {
  return {{"table", table},
          {"rows", {row_begin, row_end}},
          {"columns", {column_begin, column_end}},
          {"devices", devices}};
}

std::vector<TestTable> EveryKindOfTable() {
  return {MakeTable("bytes", WeightType::kInt8, 90, 20, 1),
          MakeTable("nibbles", WeightType::kInt4, 70, 35, 2),
          MakeTable("halves", WeightType::kFp16, 50, 10, 3),
          MakeTable("singles", WeightType::kFp32, 60, 16, 4),
          MakeTable("nibbles_wide", WeightType::kInt4, 33, 64, 5),
          MakeTable("nibbles_of_7", WeightType::kInt4, 40, 7, 6),
          MakeTable("bytes_of_1", WeightType::kInt8, 40, 1, 7)};
}

PackageBuilder EveryKindOfLookup() {
  PackageBuilder builder;
  for (const TestTable& table : EveryKindOfTable()) builder.AddTable(table);
  for (const Scope scope : {Scope::kRequest, Scope::kExample}) {
    for (const bool weighted : {false, true}) {
      for (const TestTable& table : EveryKindOfTable()) {
        const std::string name = table.name + (weighted ? " weighted" : " plain") +
                                 (scope == Scope::kRequest ? " request" : " example");
        builder.AddSparse(name, scope, weighted, {{table.name}, {table.name, Pooling::kMean}});
      }
    }
  }
  for (const TestTable& table : EveryKindOfTable()) {
    builder.AddSparse(table.name + " listed", Scope::kExample, false,
                      {{table.name, Pooling::kSum, true}});
  }
  builder.AddSparse("bytes listed request", Scope::kRequest, false,
                    {{"bytes", Pooling::kSum, true}});
  builder.AddOutput("score", Scope::kExample, {});
  return builder;
}

OpenLookup::OpenLookup(PackageBuilder builder, const PackageOptions& options,
                       const ShardedLookupOptions& lookup)
    : package_(Open(std::move(builder), folder_.path(), options)),
      lookup_(ShardedLookup::Make(*package_, lookup)) {}

Pooled OpenLookup::Run(const Bags& bags) const {
  Pooled pooled;
  const Status status = TryRun(bags, &pooled);
  EXPECT_TRUE(status.ok()) << status.message();
  return pooled;
}

Status OpenLookup::TryRun(const Bags& bags, Pooled* pooled) const {
  if (!lookup_.ok()) return lookup_.status();
  std::vector<Merged> merged;
  for (const std::vector<Bag>& input : bags.inputs) merged.push_back(Merge(input));
  std::vector<JaggedRows> sparse;
  for (const Merged& input : merged) {
    sparse.push_back({.rows = input.rows.data(),
                      .offsets = input.offsets.data(),
                      .weights = input.weights.data()});
  }
  // Values that the lookup does not write stay NaN.
  constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
  const Schema& schema = package_->schema();
  pooled->request.assign(bags.requests * schema.request_pooled_columns, kNothing);
  pooled->example.assign(bags.examples * schema.example_pooled_columns, kNothing);
  pooled->sequences.clear();
  for (const SequenceSpec& sequence : schema.sequences) {
    const size_t ids = merged[sequence.sparse_input].rows.size();
    pooled->sequences.emplace_back(ids * static_cast<size_t>(sequence.dim), kNothing);
  }
  std::vector<LookupMatrix> sequences;
  for (size_t i = 0; i < schema.sequences.size(); ++i) {
    const auto dim = static_cast<size_t>(schema.sequences[i].dim);
    std::vector<float>& values = pooled->sequences[i];
    sequences.push_back({values.data(), values.size() / dim, dim});
  }
  return (*lookup_)->Run(
      sparse, {.request = {pooled->request.data(), bags.requests, schema.request_pooled_columns},
               .example = {pooled->example.data(), bags.examples, schema.example_pooled_columns},
               .sequences = sequences});
}

Bags RandomBags(const Schema& schema, size_t requests, size_t examples, size_t longest,
                std::mt19937* random) {
  Bags bags{.requests = requests, .examples = examples, .inputs = {}};
  for (const SparseInput& input : schema.sparse) {
    std::vector<Bag> lists(input.scope == Scope::kRequest ? requests : examples);
    for (Bag& bag : lists) {
      const size_t length = (*random)() % (longest + 1);
      for (size_t i = 0; i < length; ++i) {
        const bool zero = (*random)() % 8 == 0;
        bag.rows.push_back(zero ? kZeroRow : static_cast<int64_t>((*random)()) % input.ids.rows);
        if (input.weighted) bag.weights.push_back(static_cast<float>((*random)() % 1000) / 300);
      }
    }
    bags.inputs.push_back(std::move(lists));
  }
  return bags;
}

Expected ExpectedOf(const Package& package, const std::vector<TestTable>& tables, const Bags& bags,
                    Scope scope) {
  const Schema& schema = package.schema();
  const size_t count = scope == Scope::kRequest ? bags.requests : bags.examples;
  const size_t columns =
      scope == Scope::kRequest ? schema.request_pooled_columns : schema.example_pooled_columns;
  Expected expected;
  expected.values.assign(count * columns, 0);
  expected.magnitudes.assign(count * columns, 0);
  size_t column = 0;  // Columns follow one another in the order of inputs and their lookups.
  for (size_t input = 0; input < schema.sparse.size(); ++input) {
    if (schema.sparse[input].scope != scope) continue;
    for (const LookupSpec& lookup : schema.sparse[input].lookups) {
      const TestTable& table = tables[lookup.table];
      for (size_t b = 0; b < count; ++b) {
        const Bag& bag = bags.inputs[input][b];
        for (size_t i = 0; i < bag.rows.size(); ++i) {
          if (bag.rows[i] == kZeroRow) continue;
          double factor = bag.weights.empty() ? 1 : bag.weights[i];
          if (lookup.pooling == Pooling::kMean) factor /= static_cast<double>(bag.rows.size());
          for (size_t d = 0; d < static_cast<size_t>(table.dim); ++d) {
            const size_t at = b * columns + column + d;
            expected.values[at] += factor * table.row(bag.rows[i])[d];
            expected.magnitudes[at] += factor * table.row_magnitudes(bag.rows[i])[d];
          }
        }
      }
      column += static_cast<size_t>(table.dim);
    }
  }
  EXPECT_EQ(column, columns);
  return expected;
}

void ExpectNear(const std::vector<float>& got, const Expected& expected) {
  ASSERT_EQ(got.size(), expected.values.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected.values[i], 2e-6 * expected.magnitudes[i]) << "value " << i;
  }
}

namespace {

std::vector<uint32_t> Bits(const std::vector<float>& values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

}  // namespace

void ExpectSameBits(const std::vector<float>& left, const std::vector<float>& right) {
  EXPECT_EQ(Bits(left), Bits(right));
}

void ExpectSameBits(const Pooled& left, const Pooled& right) {
  ExpectSameBits(left.request, right.request);
  ExpectSameBits(left.example, right.example);
  ASSERT_EQ(left.sequences.size(), right.sequences.size());
  for (size_t i = 0; i < left.sequences.size(); ++i) {
    ExpectSameBits(left.sequences[i], right.sequences[i]);
  }
}

}  // namespace embershard::testing
