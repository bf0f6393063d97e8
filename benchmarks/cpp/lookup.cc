// The lookup room alone, as a side: rows drawn at random from the tables of a package.
//
//   lookup <package> <bags> <rows a bag>
//
// One thread for each device of the package's default plan. Units are rows.

#include <cstddef>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmarks/cpp/lookup_batches.h"
#include "benchmarks/cpp/side.h"
#include "lookup/sharded_lookup.h"
#include "package/package.h"

namespace embershard {
namespace {

[[noreturn]] void Fail(const Status& status) {
  std::cerr << "lookup: " << status.message() << '\n';
  std::exit(1);
}

int Main(const std::string& folder, size_t bags, size_t length) {
  const auto package = Package::Open(folder, {.residency = TableResidency::kResident, .plan = ""});
  if (!package.ok()) Fail(package.status());
  const int threads = static_cast<int>((*package)->plan().devices.size());
  const auto lookup = MakeShardedLookup(**package, {.threads = threads});
  if (!lookup.ok()) Fail(lookup.status());

  const Manifest& manifest = (*package)->manifest();
  const std::vector<LookupBatch> batches = DrawLookupBatches(manifest, bags, length);
  const size_t columns = manifest.schema.example_pooled_columns;
  std::vector<float> pooled(bags * columns);
  const LookupMatrix out{.values = pooled.data(), .bags = bags, .columns = columns};
  const double rows = static_cast<double>(manifest.schema.sparse.size() * bags * length);
  size_t next = 0;
  AnswerBlocks([&] {
    const Status done =
        (*lookup)->Run(batches[next++ % batches.size()].lists(), {.request = {}, .example = out});
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
