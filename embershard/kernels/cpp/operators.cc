// Torch operators embershard::update_rows and embershard::row_products: the backward pass of fused
// tables on CPU. Their only caller, embershard/kernels/row_update.py, documents the arguments.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "embershard/kernels/cpp/row_sort.h"
#include "embershard/kernels/cpp/row_update.h"

namespace embershard::kernels {
namespace {

using at::Tensor;

constexpr int64_t kChunk = 2048;  // Occurrences in one unit of a thread's work.

struct Table {
  int64_t rows, dim, first_weight, first_state;
  int64_t first_lookup, end_lookup;  // Range of the lookups that read the table.
};

std::span<const int64_t> Integers(const Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "ids and offsets: expected contiguous ones");
  return {tensor.const_data_ptr<int64_t>(), static_cast<size_t>(tensor.numel())};
}

std::span<const Table> Tables(const Tensor& tables) {
  static_assert(sizeof(Table) == 6 * sizeof(int64_t));
  TORCH_CHECK(tables.dim() == 2 && tables.size(1) == 6 && tables.is_contiguous(),
              "tables: expected int64 [tables, 6], got ", tables.sizes());
  return {reinterpret_cast<const Table*>(tables.const_data_ptr<int64_t>()),
          static_cast<size_t>(tables.size(0))};
}

// A batch's ids, and the gradients of its bags.
struct Batch {
  Batch(const Tensor& tables, const Tensor& ids, const Tensor& bag_offsets,
        const std::optional<Tensor>& id_weights, const Tensor& gradient, bool is_pooled)
      : rows(Integers(ids)),
        offsets(Integers(bag_offsets)),
        weights(id_weights ? id_weights->const_data_ptr<float>() : nullptr),
        gradients(gradient.const_data_ptr<float>()),
        stride(gradient.size(1)),
        pooled(is_pooled) {
    int64_t lookups = 0;
    for (const Table& table : Tables(tables)) {
      TORCH_CHECK(table.dim % 4 == 0 && table.rows <= std::numeric_limits<uint32_t>::max(),
                  "expected a dim that is a multiple of 4 and under 2**32 rows");
      lookups = std::max(lookups, table.end_lookup);
    }
    TORCH_CHECK(!id_weights || id_weights->is_contiguous(), "weights: expected contiguous ones");
    TORCH_CHECK(gradient.is_contiguous() && gradient.numel() / 4 <= 0xffffffff,
                "gradients: expected at most 2**34 contiguous values, got ", gradient.sizes());
    examples = lookups > 0 ? (bag_offsets.numel() - 1) / lookups : 0;
  }

  // Calls act(at, place) for each id of a table: the id's position, and the position of its bag's
  // gradient. The output of the table's first lookup begins at `column`.
  template <class Act>
  void ForEach(const Table& table, int64_t column, Act act) const {
    for (int64_t lookup = table.first_lookup; lookup < table.end_lookup; ++lookup) {
      for (int64_t example = 0; example < examples; ++example) {
        const int64_t bag = lookup * examples + example;
        const int64_t of_bag = example * stride + column;
        for (int64_t at = offsets[bag]; at < offsets[bag + 1]; ++at) {
          act(at, pooled ? of_bag : at * stride);
        }
      }
      column += table.dim;
    }
  }

  std::span<const int64_t> rows, offsets;
  const float* weights;
  const float* gradients;
  int64_t stride;
  bool pooled;
  int64_t examples;
};

std::vector<int64_t> FirstColumns(std::span<const Table> tables) {
  std::vector<int64_t> columns;
  int64_t column = 0;
  for (const Table& table : tables) {
    columns.push_back(column);
    column += table.dim * (table.end_lookup - table.first_lookup);
  }
  return columns;
}

Optimizer OptimizerOf(std::string_view name) {
  if (name == "sgd") return Optimizer::kSgd;
  if (name == "adagrad") return Optimizer::kAdagrad;
  TORCH_CHECK(name == "rowwise_adagrad", "optimizer: expected sgd, adagrad or rowwise_adagrad");
  return Optimizer::kRowwiseAdagrad;
}

// A part of a table's sorted occurrences, with all those of each of its rows.
struct Chunk {
  size_t table;
  std::span<const Occurrence> sorted;
};

void AddChunks(size_t table, std::span<const Occurrence> sorted, std::vector<Chunk>& chunks) {
  while (!sorted.empty()) {
    size_t end = std::min<size_t>(kChunk, sorted.size());
    while (end < sorted.size() && sorted[end].row == sorted[end - 1].row) ++end;
    chunks.push_back({table, sorted.first(end)});
    sorted = sorted.subspan(end);
  }
}

void UpdateTables(Tensor weights, const std::optional<Tensor>& state, const Tensor& tables,
                  const Tensor& rows, const Tensor& offsets,
                  const std::optional<Tensor>& id_weights, const Tensor& gradients, bool pooled,
                  c10::string_view optimizer, double learning_rate, double eps) {
  const std::span<const Table> all = Tables(tables);
  const Batch batch(tables, rows, offsets, id_weights, gradients, pooled);
  const std::vector<int64_t> columns = FirstColumns(all);
  const Step step{OptimizerOf(optimizer), static_cast<float>(learning_rate),
                  static_cast<float>(eps)};
  const size_t count = batch.rows.size();
  const auto occurrences = std::make_unique_for_overwrite<Occurrence[]>(count);
  const auto spare = std::make_unique_for_overwrite<Occurrence[]>(count);
  std::vector<std::span<const Occurrence>> sorted(all.size());
  at::parallel_for(0, static_cast<int64_t>(all.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t index = from; index < to; ++index) {
      const Table& table = all[index];
      const int64_t begin = batch.offsets[table.first_lookup * batch.examples];
      const size_t size = batch.offsets[table.end_lookup * batch.examples] - begin;
      Occurrence* next = occurrences.get() + begin;
      batch.ForEach(table, columns[index], [&](int64_t at, int64_t place) {
        *next++ = {static_cast<uint32_t>(batch.rows[at]), static_cast<uint32_t>(place / 4),
                   batch.weights != nullptr ? batch.weights[at] : 1.0f};
      });
      sorted[index] =
          SortByRow({occurrences.get() + begin, size}, {spare.get() + begin, size}, table.rows);
    }
  });

  std::vector<Chunk> chunks;
  for (size_t index = 0; index < all.size(); ++index) AddChunks(index, sorted[index], chunks);
  const UpdateRows update = FastestUpdateRows();
  const bool is_half = weights.scalar_type() == at::kHalf;
  auto* const first_weight = static_cast<std::byte*>(weights.mutable_data_ptr());
  float* const first_state = state ? state->mutable_data_ptr<float>() : nullptr;
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t index = from; index < to; ++index) {
      const Table& table = all[chunks[index].table];
      update({.weights = first_weight + table.first_weight * (is_half ? 2 : 4),
              .state = first_state != nullptr ? first_state + table.first_state : nullptr,
              .dim = table.dim,
              .is_half = is_half},
             step, batch.gradients, chunks[index].sorted);
    }
  });
}

template <class Weight>
void Products(const Weight* weights, const Tensor& tables, const Batch& batch, float* products) {
  const std::span<const Table> all = Tables(tables);
  const std::vector<int64_t> columns = FirstColumns(all);
  at::parallel_for(0, static_cast<int64_t>(all.size()), 1, [&](int64_t from, int64_t to) {
    for (int64_t index = from; index < to; ++index) {
      const Table& table = all[index];
      batch.ForEach(table, columns[index], [&](int64_t at, int64_t place) {
        const Weight* row = weights + table.first_weight + batch.rows[at] * table.dim;
        float sum = 0;
        for (int64_t column = 0; column < table.dim; ++column) {
          sum += static_cast<float>(row[column]) * batch.gradients[place + column];
        }
        products[at] = sum;
      });
    }
  });
}

Tensor RowProducts(const Tensor& weights, const Tensor& tables, const Tensor& rows,
                   const Tensor& offsets, const Tensor& gradients) {
  const Batch batch(tables, rows, offsets, std::nullopt, gradients, true);
  Tensor products = at::empty(rows.sizes(), at::kFloat);
  if (weights.scalar_type() == at::kHalf) {
    Products(weights.const_data_ptr<at::Half>(), tables, batch, products.mutable_data_ptr<float>());
  } else {
    Products(weights.const_data_ptr<float>(), tables, batch, products.mutable_data_ptr<float>());
  }
  return products;
}

}  // namespace
}  // namespace embershard::kernels

TORCH_LIBRARY_FRAGMENT(embershard, library) {
  library.def(
      "update_rows(Tensor(a!) weights, Tensor(b!)? state, Tensor tables, Tensor rows, "
      "Tensor offsets, Tensor? id_weights, Tensor gradients, bool pooled, str optimizer, "
      "float learning_rate, float eps) -> ()",
      embershard::kernels::UpdateTables);
  library.def(
      "row_products(Tensor weights, Tensor tables, Tensor rows, Tensor offsets, Tensor gradients) "
      "-> Tensor",
      embershard::kernels::RowProducts);
}
