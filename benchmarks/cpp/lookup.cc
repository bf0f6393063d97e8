// The lookup room alone, as a side: rows drawn at random from the tables of a package.
//
//   lookup <package> <bags> <rows a bag>
//
// One thread for each device of the package's default plan. Units are rows.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmarks/cpp/side.h"
#include "lookup/sharded_lookup.h"
#include "package/package.h"

namespace embershard {
namespace {

// Of each table, drawn in advance in four batches or more: too many for the fast caches.
constexpr size_t kRowsDrawn = size_t{1} << 15;

[[noreturn]] void Fail(const Status& status) {
  std::cerr << "lookup: " << status.message() << '\n';
  std::exit(1);
}

// A batch for every sparse input: `bags` lists of `length` rows each.
class Batch {
 public:
  Batch(const Manifest& manifest, size_t bags, size_t length, std::mt19937_64& random)
      : offsets_(bags + 1) {
    for (size_t bag = 0; bag <= bags; ++bag) offsets_[bag] = static_cast<int64_t>(bag * length);
    for (const SparseInput& input : manifest.schema.sparse) {
      const int64_t rows = manifest.tables[input.lookups.front().table].rows;
      std::uniform_int_distribution<int64_t> draw(0, rows - 1);
      std::vector<int64_t>& drawn = rows_.emplace_back(bags * length);
      for (int64_t& row : drawn) row = draw(random);
    }
    for (const std::vector<int64_t>& drawn : rows_) {
      lists_.push_back({.rows = drawn.data(), .offsets = offsets_.data(), .weights = nullptr});
    }
  }

  std::span<const JaggedRows> lists() const { return lists_; }

 private:
  std::vector<int64_t> offsets_;
  std::vector<std::vector<int64_t>> rows_;
  std::vector<JaggedRows> lists_;
};

int Main(const std::string& folder, size_t bags, size_t length) {
  const auto package = Package::Open(folder, {.residency = TableResidency::kResident, .plan = ""});
  if (!package.ok()) Fail(package.status());
  const int threads = static_cast<int>((*package)->plan().devices.size());
  const auto lookup = MakeShardedLookup(**package, {.threads = threads});
  if (!lookup.ok()) Fail(lookup.status());

  const Manifest& manifest = (*package)->manifest();
  std::mt19937_64 random(1);
  std::vector<std::unique_ptr<Batch>> batches;
  const size_t n_of_batches = std::max<size_t>(4, kRowsDrawn / (bags * length));
  for (size_t i = 0; i < n_of_batches; ++i) {
    batches.push_back(std::make_unique<Batch>(manifest, bags, length, random));
  }
  const size_t columns = manifest.schema.example_pooled_columns;
  std::vector<float> pooled(bags * columns);
  const PooledMatrix none, out{.values = pooled.data(), .bags = bags, .columns = columns};
  const double rows = static_cast<double>(manifest.schema.sparse.size() * bags * length);
  size_t next = 0;
  AnswerBlocks([&] {
    const Status done = (*lookup)->Run(batches[next++ % n_of_batches]->lists(), none, out);
    if (!done.ok()) Fail(done);
    return rows;
  });
  return 0;
}

}  // namespace
}  // namespace embershard

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: lookup PACKAGE BAGS ROWS_A_BAG\n";
    return 2;
  }
  return embershard::Main(argv[1], std::strtoull(argv[2], nullptr, 10),
                          std::strtoull(argv[3], nullptr, 10));
}
