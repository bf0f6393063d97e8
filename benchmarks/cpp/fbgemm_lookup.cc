// FBGEMM's quantized lookup called from C++, as a side: the tables and rows of `lookup`.
//
//   fbgemm_lookup <package> <bags> <rows a bag>
//
// One call of the operator a batch, through torch's dispatcher; row numbers are 32 bits wide and
// unchecked, the tables in huge pages where the system gives them. One thread: the operator has no
// more. Units are rows.

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "benchmarks/cpp/lookup_batches.h"
#include "benchmarks/cpp/side.h"
#include "dense/fbgemm_operators.h"
#include "lookup/sharded_lookup.h"
#include "package/package.h"

namespace embershard {
namespace {

// FBGEMM's numbers (SparseType, EmbeddingLocation, PoolingMode).
constexpr int64_t kFp32 = 0;
constexpr int64_t kInt8 = 2;
constexpr int32_t kHost = 3;
constexpr int64_t kSum = 0;

[[noreturn]] void Fail(const std::string& message) {
  std::cerr << "fbgemm_lookup: " << message << '\n';
  std::exit(1);
}

using Arguments = std::map<std::string, c10::IValue>;

// Those that are the same for every batch, by their names in the operator's schema.
Arguments FixedArguments(const Package& package) {
  const Manifest& manifest = package.manifest();
  const TableStore& tables = package.tables();
  std::vector<int64_t> offsets, dim_offsets = {0};
  int64_t largest_dim = 0;
  // The operator takes one array of weights: what spans the tables, of which it reads these alone.
  std::byte* base = nullptr;
  const std::byte* end = nullptr;
  for (size_t i = 0; i < manifest.tables.size(); ++i) {
    auto* const rows = const_cast<std::byte*>(tables.rows(i));  // It only reads.
    if (base == nullptr || rows < base) base = rows;
    end = std::max(end, tables.rows(i) + tables.size_bytes(i));
  }
  for (const SparseInput& input : manifest.schema.sparse) {
    const size_t at = input.lookups.front().table;
    const TableSpec& table = manifest.tables[at];
    if (table.weights != WeightType::kInt8) Fail("table '" + table.name + "': expected int8");
    offsets.push_back(tables.rows(at) - base);
    dim_offsets.push_back(dim_offsets.back() + table.dim);
    largest_dim = std::max(largest_dim, table.dim);
  }
  const std::vector<int64_t> types(offsets.size(), kInt8);
  const std::vector<int32_t> placements(offsets.size(), kHost);
  return {
      {"dev_weights", at::from_blob(base, {end - base}, at::kByte)},
      {"uvm_weights", at::empty({0}, at::kByte)},
      {"weights_placements", at::tensor(placements, at::kInt)},
      {"weights_offsets", at::tensor(offsets, at::kLong)},
      {"weights_tys", at::tensor(types, at::kByte)},
      {"D_offsets", at::tensor(dim_offsets, at::kInt)},
      {"total_D", dim_offsets.back()},
      {"max_int2_D", 0},
      {"max_int4_D", 0},
      {"max_int8_D", largest_dim},
      {"max_float16_D", 0},
      {"max_float32_D", 0},
      {"pooling_mode", kSum},
      {"indice_weights", c10::IValue()},
      {"output_dtype", kFp32},
      {"row_alignment", 1},
  };
}

// The batch's lists one behind the other, as the operator wants them.
Arguments BatchArguments(const LookupBatch& batch, size_t bags) {
  std::vector<int32_t> rows, offsets = {0};
  for (const JaggedRows& list : batch.lists()) {
    const auto begin = static_cast<int32_t>(rows.size());
    for (size_t bag = 1; bag <= bags; ++bag) {
      offsets.push_back(begin + static_cast<int32_t>(list.offsets[bag]));
    }
    for (int64_t i = 0; i < list.offsets[bags]; ++i) {
      rows.push_back(static_cast<int32_t>(list.rows[i]));
    }
  }
  return {{"indices", at::tensor(rows, at::kInt)}, {"offsets", at::tensor(offsets, at::kInt)}};
}

// In the order of the schema.
std::vector<c10::IValue> Ordered(const c10::FunctionSchema& schema, Arguments named) {
  std::vector<c10::IValue> ordered;
  for (const c10::Argument& argument : schema.arguments()) {
    if (const auto value = named.find(argument.name()); value != named.end()) {
      ordered.push_back(value->second);
    } else if (argument.default_value()) {
      ordered.push_back(*argument.default_value());
    } else {
      Fail("the operator wants '" + argument.name() + "', which this program does not know");
    }
  }
  return ordered;
}

// What is measured must be the same work: the sums of one batch beside those of our kernels.
void Check(const Package& package, const LookupBatch& batch, const at::Tensor& sums) {
  const auto lookup = MakeShardedLookup(package, {.threads = 1});
  if (!lookup.ok()) Fail(lookup.status().message());
  const auto bags = static_cast<size_t>(sums.size(0)), columns = static_cast<size_t>(sums.size(1));
  if (columns != package.schema().example_pooled_columns) {
    Fail("expected inputs of examples with one lookup each");
  }
  std::vector<float> ours(bags * columns);
  const LookupMatrix out{.values = ours.data(), .bags = bags, .columns = columns};
  const Status done = (*lookup)->Run(batch.lists(), {.request = {}, .example = out});
  if (!done.ok()) Fail(done.message());
  const auto* theirs = sums.const_data_ptr<float>();
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!(std::abs(ours[i] - theirs[i]) <= 1e-4F)) {  // Nor is NaN.
      Fail("sum " + std::to_string(i) + ": expected " + std::to_string(ours[i]) + ", got " +
           std::to_string(theirs[i]));
    }
  }
}

int Main(const std::string& folder, size_t bags, size_t length) {
  if (Status status = LoadFbgemmOperators(EMBERSHARD_FBGEMM_FOLDER); !status.ok()) {
    Fail(status.message());
  }
  const auto package = Package::Open(folder, {.residency = TableResidency::kResident, .plan = ""});
  if (!package.ok()) Fail(package.status().message());
  const auto lookup = c10::Dispatcher::singleton().findSchemaOrThrow(
      "fbgemm::int_nbit_split_embedding_codegen_lookup_function", "");
  at::set_num_threads(1);
  const c10::InferenceMode guard;

  const std::vector<LookupBatch> batches = DrawLookupBatches((*package)->manifest(), bags, length);
  const Arguments fixed = FixedArguments(**package);
  std::vector<std::vector<c10::IValue>> calls;
  for (const LookupBatch& batch : batches) {
    Arguments arguments = BatchArguments(batch, bags);
    arguments.insert(fixed.begin(), fixed.end());
    calls.push_back(Ordered(lookup.schema(), std::move(arguments)));
  }
  std::vector<c10::IValue> stack = calls.front();
  lookup.callBoxed(stack);
  Check(**package, batches.front(), stack.front().toTensor());

  const auto rows = static_cast<double>((*package)->schema().sparse.size() * bags * length);
  size_t next = 0;
  AnswerBlocks([&] {
    stack = calls[next++ % calls.size()];
    lookup.callBoxed(stack);
    stack.clear();
    return rows;
  });
  return 0;
}

}  // namespace
}  // namespace embershard

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: fbgemm_lookup PACKAGE BAGS ROWS_A_BAG\n";
    return 2;
  }
  return embershard::Main(argv[1], std::strtoull(argv[2], nullptr, 10),
                          std::strtoull(argv[3], nullptr, 10));
}
