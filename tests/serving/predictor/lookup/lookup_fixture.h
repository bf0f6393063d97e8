// Batches for lookups, and what they must give.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "lookup/lookup.h"
#include "lookup/sharded_lookup.h"
#include "package/package.h"
#include "testing/package_builder.h"
#include "testing/scratch_folder.h"
#include "testing/test_table.h"

namespace embershard::testing {

// A table for each way to store rows; dims that are a multiple of 4 and some that are not.
std::vector<TestTable> EveryKindOfTable();

// A package without a plan: sums and means, weighted and not, and sequences, in both scopes, over
// EveryKindOfTable().
PackageBuilder EveryKindOfLookup();

// A shard for PackageBuilder::AddPlanOfShards().
nlohmann::json ShardOf(const std::string& table, int64_t row_begin, int64_t row_end,
                       int64_t column_begin, int64_t column_end,
                       const std::vector<size_t>& devices);

// One list of rows, and a weight for each where the input is weighted.
struct Bag {
  std::vector<int64_t> rows;
  std::vector<float> weights;
};

// Bags of each sparse input: as many as there are requests or examples.
struct Bags {
  size_t requests = 0;
  size_t examples = 0;
  std::vector<std::vector<Bag>> inputs;
};

// All that a lookup gives.
struct Pooled {
  std::vector<float> request;  // [requests, request_pooled_columns]
  std::vector<float> example;  // [examples, example_pooled_columns]

  std::vector<std::vector<float>> sequences = {};  // [ids of the input, dim] each.
};

// A package in a scratch folder, opened, and the lookup over it.
class OpenLookup {
 public:
  // Fails the test where the package does not open.
  explicit OpenLookup(PackageBuilder builder, const PackageOptions& options = {},
                      const ShardedLookupOptions& lookup = {.threads = 1});

  const Package& package() const { return *package_; }
  const Result<std::unique_ptr<ShardedLookup>>& made() const { return lookup_; }

  // Fails the test where the lookup was not made or fails.
  Pooled Run(const Bags& bags) const;
  Status TryRun(const Bags& bags, Pooled* pooled) const;

 private:
  ScratchFolder folder_;
  std::unique_ptr<Package> package_;
  Result<std::unique_ptr<ShardedLookup>> lookup_;
};

// Bags of up to `longest` rows, kZeroRow among them now and then.
Bags RandomBags(const Schema& schema, size_t requests, size_t examples, size_t longest,
                std::mt19937* random);

// The pooled vectors in double precision, straight from the tables' values, and the
// magnitudes of what was added up.
struct Expected {
  std::vector<double> values;
  std::vector<double> magnitudes;
};
Expected ExpectedOf(const Package& package, const std::vector<TestTable>& tables, const Bags& bags,
                    Scope scope);

// Fails the test where a value is off by more than 2e-6 of its magnitude.
void ExpectNear(const std::vector<float>& got, const Expected& expected);

// Fails the test where a bit differs.
void ExpectSameBits(const std::vector<float>& left, const std::vector<float>& right);
void ExpectSameBits(const Pooled& left, const Pooled& right);

}  // namespace embershard::testing
