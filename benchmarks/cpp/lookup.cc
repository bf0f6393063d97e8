// Looks up random rows of a package's tables, as a side of a comparison:
//
//   lookup <package> <bags> <rows a bag> <threads> <side> [<batches>]
//
//   embershard   our kernels; threads share a batch
//   each         our kernels; each thread has its own batch
//   fbgemm       FBGEMM's operator; each thread has its own batch
//
// All sides read the same tables, in huge pages if possible, and the same batches. <batches> is the
// number for each thread. By default their rows just exceed the L1 and L2 caches, but may fit the
// L3 cache: only 64 batches of 512 bags of 20 rows read a quarter of 8 tables of 1 GiB.
//
// FBGEMM's operator is called with 32-bit row numbers, which it does not check. Its sums are first
// compared with ours. Do not set THP_MEM_ALLOC_ENABLE=1: FBGEMM then maps sums of over 2 MiB again
// in every call, which took seven times as long for 512 bags of 26 tables.

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
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "benchmarks/cpp/blocks.h"
#include "dense/dense_program.h"
#include "lookup/sharded_lookup.h"
#include "package/package.h"

namespace embershard {
namespace {

constexpr size_t kRowsDrawn = size_t{1} << 15;  // Least rows of each table in all batches together.

[[noreturn]] void Fail(const std::string& message) {
  std::cerr << "lookup: " << message << '\n';
  std::exit(1);
}

struct Arguments {
  std::string package;
  size_t bags = 0;
  size_t length = 0;  // Rows of each bag.
  size_t threads = 0;
  size_t batches = 0;  // Batches of each thread. 0: by kRowsDrawn.
};

class Batch {
 public:
  Batch(const Package& package, size_t bags, size_t length, std::mt19937_64& random)
      : offsets_(bags + 1) {
    for (size_t bag = 0; bag <= bags; ++bag) offsets_[bag] = static_cast<int64_t>(bag * length);
    const Manifest& manifest = package.manifest();
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

  Batch(Batch&&) = default;  // The lists point into vectors, which do not move.
  Batch(const Batch&) = delete;

  std::span<const JaggedRows> lists() const { return lists_; }

 private:
  std::vector<int64_t> offsets_;
  std::vector<std::vector<int64_t>> rows_;
  std::vector<JaggedRows> lists_;
};

std::vector<Batch> DrawBatches(const Package& package, const Arguments& arguments) {
  std::mt19937_64 random(1);
  std::vector<Batch> batches;
  const auto [_, bags, length, threads, wanted] = arguments;
  const size_t count = wanted > 0 ? wanted : std::max<size_t>(4, kRowsDrawn / (bags * length));
  for (size_t i = 0; i < count * threads; ++i) batches.emplace_back(package, bags, length, random);
  return batches;
}

class OurLookup {
 public:
  OurLookup(const Package& package, size_t bags, size_t threads)
      : columns_(package.schema().example_pooled_columns), pooled_(bags * columns_) {
    auto lookup = ShardedLookup::Make(package, {.threads = static_cast<int>(threads)});
    if (!lookup.ok()) Fail(lookup.status().message());
    lookup_ = std::move(*lookup);
  }

  std::span<const float> Run(const Batch& batch) {
    const size_t bags = pooled_.size() / columns_;
    const LookupMatrix out{.values = pooled_.data(), .bags = bags, .columns = columns_};
    const Status done = lookup_->Run(batch.lists(), {.request = {}, .example = out});
    if (!done.ok()) Fail(done.message());
    return pooled_;
  }

 private:
  size_t columns_;
  std::vector<float> pooled_;
  std::unique_ptr<ShardedLookup> lookup_;
};

using Named = std::map<std::string, c10::IValue>;

// FBGEMM's values of SparseType, EmbeddingLocation and PoolingMode.
constexpr int64_t kFp32 = 0;
constexpr int64_t kInt8 = 2;
constexpr int64_t kInt4 = 3;
constexpr int32_t kHost = 3;
constexpr int64_t kSum = 0;

// Arguments that are the same for every batch, by their names in the operator's schema.
Named TableArguments(const Package& package) {
  const Manifest& manifest = package.manifest();
  const TableStore& tables = package.tables();
  std::vector<int64_t> offsets, types, dim_offsets = {0};
  int64_t largest_dims[2] = {};  // For int8 tables, and for int4 tables.
  // The operator takes one array of weights, so pass the memory from the first to the last table.
  std::byte* base = nullptr;
  const std::byte* end = nullptr;
  for (size_t i = 0; i < manifest.tables.size(); ++i) {
    auto* const rows = const_cast<std::byte*>(tables.rows(i));  // The operator only reads them.
    if (base == nullptr || rows < base) base = rows;
    end = std::max(end, tables.rows(i) + tables.size_bytes(i));
  }
  for (const SparseInput& input : manifest.schema.sparse) {
    const size_t at = input.lookups.front().table;
    const TableSpec& table = manifest.tables[at];
    const bool is_int4 = table.weights == WeightType::kInt4;
    if (!is_int4 && table.weights != WeightType::kInt8) {
      Fail("table '" + table.name + "': expected int8 or int4, got another type");
    }
    offsets.push_back(tables.rows(at) - base);
    types.push_back(is_int4 ? kInt4 : kInt8);
    dim_offsets.push_back(dim_offsets.back() + table.dim);
    largest_dims[is_int4] = std::max(largest_dims[is_int4], table.dim);
  }
  return {
      {"dev_weights", at::from_blob(base, {end - base}, at::kByte)},
      {"uvm_weights", at::empty({0}, at::kByte)},
      {"weights_placements", at::tensor(std::vector<int32_t>(offsets.size(), kHost), at::kInt)},
      {"weights_offsets", at::tensor(offsets, at::kLong)},
      {"weights_tys", at::tensor(types, at::kByte)},
      {"D_offsets", at::tensor(dim_offsets, at::kInt)},
      {"total_D", dim_offsets.back()},
      {"max_int2_D", 0},
      {"max_int4_D", largest_dims[1]},
      {"max_int8_D", largest_dims[0]},
      {"max_float16_D", 0},
      {"max_float32_D", 0},
      {"pooling_mode", kSum},
      {"indice_weights", c10::IValue()},
      {"output_dtype", kFp32},
      {"row_alignment", 1},
  };
}

// The operator's arguments with the concatenated lists of a batch.
Named BatchArguments(const Batch& batch, size_t bags) {
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

class FbgemmLookup {
 public:
  FbgemmLookup(const Package& package, const std::vector<Batch>& batches, size_t bags)
      : operator_(Operator()) {
    const Named tables = TableArguments(package);
    for (const Batch& batch : batches) {
      Named named = BatchArguments(batch, bags);
      named.insert(tables.begin(), tables.end());
      calls_.push_back(Ordered(named));
    }
  }

  // Thread-safe.
  at::Tensor Run(size_t batch) const {
    const c10::InferenceMode guard;
    std::vector<c10::IValue> stack = calls_[batch];
    operator_.callBoxed(stack);
    return stack.front().toTensor();
  }

 private:
  static c10::OperatorHandle Operator() {
    const Status loaded = LoadFbgemmOperators(EMBERSHARD_FBGEMM_FOLDER);
    if (!loaded.ok()) Fail(loaded.message());
    return c10::Dispatcher::singleton().findSchemaOrThrow(
        "fbgemm::int_nbit_split_embedding_codegen_lookup_function", "");
  }

  std::vector<c10::IValue> Ordered(const Named& named) const {
    std::vector<c10::IValue> ordered;
    for (const c10::Argument& argument : operator_.schema().arguments()) {
      if (const auto value = named.find(argument.name()); value != named.end()) {
        ordered.push_back(value->second);
      } else if (argument.default_value()) {
        ordered.push_back(*argument.default_value());
      } else {
        Fail("FBGEMM's operator: expected only known arguments, got '" + argument.name() + "'");
      }
    }
    return ordered;
  }

  c10::OperatorHandle operator_;
  std::vector<std::vector<c10::IValue>> calls_;
};

void CheckSums(std::span<const float> ours, const at::Tensor& theirs) {
  if (theirs.numel() != static_cast<int64_t>(ours.size())) {
    Fail("package: expected inputs of example scope with one lookup each, got others");
  }
  const auto* values = theirs.const_data_ptr<float>();
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!(std::abs(ours[i] - values[i]) <= 1e-4F)) {  // Also fails for NaN.
      Fail("sum " + std::to_string(i) + ": expected " + std::to_string(ours[i]) + ", got " +
           std::to_string(values[i]));
    }
  }
}

void Main(const Arguments& arguments, const std::string& side) {
  const auto [folder, bags, length, threads, _] = arguments;
  const auto package = Package::Open(folder, {.residency = TableResidency::kResident, .plan = ""});
  if (!package.ok()) Fail(package.status().message());
  at::set_num_threads(1);
  const std::vector<Batch> batches = DrawBatches(**package, arguments);
  const double million_rows =
      1e-6 * static_cast<double>((*package)->schema().sparse.size() * bags * length);

  const bool share = side == "embershard";
  std::vector<std::unique_ptr<OurLookup>> ours;
  for (size_t i = 0; i < (side == "each" ? threads : 1); ++i) {
    ours.push_back(std::make_unique<OurLookup>(**package, bags, share ? threads : 1));
  }
  std::unique_ptr<FbgemmLookup> theirs;
  if (side == "fbgemm") {
    theirs = std::make_unique<FbgemmLookup>(**package, batches, bags);
    CheckSums(ours.front()->Run(batches.front()), theirs->Run(0));
  }
  const size_t callers = share ? 1 : threads;
  std::vector<size_t> next(callers);  // Caller t has the batches t, t + callers, ...
  benchmarks::AnswerBlocks("million_rows", callers, [&](size_t caller) {
    const size_t batch = (next[caller]++ * callers + caller) % batches.size();
    if (theirs != nullptr) {
      theirs->Run(batch);
    } else {
      ours[caller]->Run(batches[batch]);
    }
    return million_rows;
  });
}

}  // namespace
}  // namespace embershard

int main(int argc, char** argv) {
  const std::string side = argc == 6 || argc == 7 ? argv[5] : "";
  if (side != "embershard" && side != "each" && side != "fbgemm") {
    std::cerr << "usage: lookup PACKAGE BAGS ROWS_A_BAG THREADS embershard|each|fbgemm [BATCHES]\n";
    return 2;
  }
  const auto number = [&](int at) { return std::strtoull(argv[at], nullptr, 10); };
  const size_t batches = argc == 7 ? number(6) : 0;
  embershard::Main({argv[1], number(2), number(3), number(4), batches}, side);
}
