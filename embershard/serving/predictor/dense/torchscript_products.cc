#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "dense/torchscript_passes.h"
#include "dense/vector_products.h"

namespace embershard {

namespace {

using torch::jit::AliasDb;
using torch::jit::Node;
using torch::jit::Value;

constexpr int64_t kThreadExamples = 16;  // Minimum number of examples for one thread, about 50 us.
constexpr int64_t kExamplesCopied = 4;

const auto kPairKind = c10::Symbol::fromQualString("embershard::pair_products");
const auto kCrossKind = c10::Symbol::fromQualString("embershard::cross_products");

bool AreVectors(const at::Tensor& x) {
  return x.dim() == 3 && x.scalar_type() == at::kFloat && x.device().is_cpu() && x.size(1) > 0 &&
         x.size(2) > 0;
}

size_t Size(const at::Tensor& x, int64_t dim) { return static_cast<size_t>(x.size(dim)); }

// Each example needs `count` vectors in all.
bool AreParts(const std::vector<at::Tensor>& parts, int64_t count) {
  for (const at::Tensor& part : parts) {
    if (!AreVectors(part) || part.size(0) != parts[0].size(0) || part.size(2) != parts[0].size(2)) {
      return false;
    }
    count -= part.size(1);
  }
  return count == 0;
}

// The smallest number of vectors that has at least this number of pairs.
int64_t VectorsOf(int64_t pairs) {
  int64_t count = 2;
  while (count * (count - 1) / 2 < pairs) ++count;
  return count;
}

// Returns products [B, n * (n - 1) / 2] for parts [B, n_i, D] of n vectors and
// pairs [n * (n - 1) / 2]. Concatenates the parts of a few examples at a time, so that they stay in
// the first-level cache.
at::Tensor PairProductsOf(std::vector<at::Tensor> parts, const at::Tensor& pairs) {
  const int64_t count = VectorsOf(pairs.numel());
  if (!AreParts(parts, count)) {
    const at::Tensor x = at::cat(parts, 1);
    return at::bmm(x, x.transpose(1, 2)).flatten(1).index_select(1, pairs);
  }
  for (at::Tensor& part : parts) part = part.contiguous();
  const int64_t dim = parts[0].size(2);
  const int64_t examples = parts[0].size(0);
  at::Tensor products = at::empty({examples, pairs.numel()}, parts[0].options());
  at::parallel_for(0, examples, kThreadExamples, [&](int64_t first, int64_t last) {
    std::vector<float> vectors(static_cast<size_t>(kExamplesCopied * count * dim));
    for (; first < last; first += kExamplesCopied) {
      const int64_t copied = std::min(kExamplesCopied, last - first);
      float* to = vectors.data();
      for (int64_t example = first; example < first + copied; ++example) {
        for (const at::Tensor& part : parts) {
          const int64_t size = part.size(1) * dim;
          to = std::copy_n(part.const_data_ptr<float>() + example * size, size, to);
        }
      }
      BestVectorProducts()->pairs(
          {.vectors = vectors.data(),
           .examples = static_cast<size_t>(copied),
           .count = static_cast<size_t>(count),
           .dim = static_cast<size_t>(dim),
           .products = products.mutable_data_ptr<float>() + first * pairs.numel()});
    }
  });
  return products;
}

bool AreRowsOf(const at::Tensor& rows, const at::Tensor& y) {
  if (rows.dim() != 1 || rows.scalar_type() != at::kLong || !rows.is_contiguous()) return false;
  const int64_t* const begin = rows.const_data_ptr<int64_t>();
  return std::all_of(begin, begin + rows.numel(),
                     [&](int64_t row) { return row >= 0 && row < y.size(0); });
}

// Returns products [B, n * m] for vectors [B, n, D], others [R, m, D] and rows [B].
at::Tensor CrossProductsOf(const at::Tensor& vectors, const at::Tensor& others,
                           const at::Tensor& rows) {
  if (!AreVectors(vectors) || !AreVectors(others) || vectors.size(2) != others.size(2) ||
      vectors.size(0) != rows.numel() || !AreRowsOf(rows, others)) {
    return at::bmm(vectors, others.index_select(0, rows).transpose(1, 2)).flatten(1);
  }
  const at::Tensor x = vectors.contiguous();
  const at::Tensor y = others.contiguous();
  const int64_t width = x.size(1) * y.size(1);
  at::Tensor products = at::empty({x.size(0), width}, x.options());
  at::parallel_for(0, x.size(0), kThreadExamples, [&](int64_t first, int64_t last) {
    BestVectorProducts()->cross(
        {.vectors = x.const_data_ptr<float>() + first * x.size(1) * x.size(2),
         .examples = static_cast<size_t>(last - first),
         .count = Size(x, 1),
         .dim = Size(x, 2),
         .others = y.const_data_ptr<float>(),
         .row_of = rows.const_data_ptr<int64_t>() + first,
         .other_count = Size(y, 1),
         .products = products.mutable_data_ptr<float>() + first * width});
  });
  return products;
}

const torch::jit::RegisterOperators kProductOperators(
    {torch::jit::Operator(
         "embershard::pair_products(Tensor[] parts, Tensor pairs) -> Tensor",
         [](torch::jit::Stack& stack) {
           const at::Tensor pairs = torch::jit::pop(stack).toTensor();
           const std::vector<at::Tensor> parts = torch::jit::pop(stack).toTensorVector();
           torch::jit::push(stack, PairProductsOf(parts, pairs));
         },
         c10::AliasAnalysisKind::FROM_SCHEMA),
     torch::jit::Operator(
         "embershard::cross_products(Tensor x, Tensor others, Tensor rows) -> Tensor",
         [](torch::jit::Stack& stack) {
           const at::Tensor rows = torch::jit::pop(stack).toTensor();
           const at::Tensor others = torch::jit::pop(stack).toTensor();
           const at::Tensor x = torch::jit::pop(stack).toTensor();
           torch::jit::push(stack, CrossProductsOf(x, others, rows));
         },
         c10::AliasAnalysisKind::FROM_SCHEMA)});

// True if the node has these integers after its first input.
bool Is(const Node* node, c10::Symbol kind, const std::vector<int64_t>& integers) {
  if (node->kind() != kind || node->inputs().size() < integers.size() + 1) return false;
  for (size_t i = 0; i < integers.size(); ++i) {
    const auto input = torch::jit::toIValue(node->input(i + 1));
    if (!input || !input->isInt() || input->toInt() != integers[i]) return false;
  }
  return true;
}

// Returns the bmm in flatten(bmm(x, transpose(y, 1, 2)), 1) if nothing else uses it, or null.
Node* ProductsIn(const Node* flatten) {
  if (!Is(flatten, c10::aten::flatten, {1, -1})) return nullptr;
  Node* const product = flatten->input(0)->node();
  if (product->kind() != c10::aten::bmm || product->output()->uses().size() != 1) return nullptr;
  return Is(product->input(1)->node(), c10::aten::transpose, {1, 2}) ? product : nullptr;
}

// The pairs i < j are positions in a flattened matrix of n columns, in order.
bool ListsPairs(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isTensor()) return false;
  const at::Tensor& pairs = constant->toTensor();
  if (pairs.scalar_type() != at::kLong || pairs.dim() != 1) return false;
  const int64_t count = VectorsOf(pairs.numel());
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = i + 1; j < count; ++j) expected.push_back(i * count + j);
  }
  const at::Tensor listed = pairs.contiguous();
  const int64_t* const begin = listed.const_data_ptr<int64_t>();
  return std::equal(begin, begin + listed.numel(), expected.begin(), expected.end());
}

// Returns the list of tensors that x concatenates, or a new list of only x before the node
// `before`. The list is always new if the program writes to a part, since the write may come before
// that node.
Value* PartsOf(Value* x, Node* before, const AliasDb& aliases) {
  const Node* const node = x->node();
  const auto is_read_only = [&aliases](const Value* value) { return !aliases.hasWriters(value); };
  if (Is(node, c10::aten::cat, {1}) && node->input(0)->node()->kind() == c10::prim::ListConstruct &&
      is_read_only(node->input(0)) &&
      std::ranges::all_of(node->input(0)->node()->inputs(), is_read_only)) {
    return node->input(0);
  }
  Node* const list = before->owningGraph()->createList(c10::TensorType::get(), {x});
  return list->insertBefore(before)->output();
}

void ReplaceBy(Node* node, c10::Symbol kind, const std::vector<Value*>& inputs) {
  Node* const products = node->owningGraph()->create(kind, inputs);
  products->output()->setType(c10::TensorType::get());
  products->insertBefore(node);
  node->output()->replaceAllUsesWith(products->output());
}

void ReplacePairs(Node* select, const AliasDb& aliases) {
  const Node* const flatten = select->input(0)->node();
  const Node* const product = ProductsIn(flatten);
  if (product == nullptr || flatten->output()->uses().size() != 1) return;
  Value* const x = product->input(0);
  if (product->input(1)->node()->input(0) != x || !ListsPairs(select->input(2))) return;
  if (aliases.hasWriters(x)) return;
  ReplaceBy(select, kPairKind, {PartsOf(x, select, aliases), select->input(2)});
}

void ReplaceCross(Node* flatten, const AliasDb& aliases) {
  const Node* const product = ProductsIn(flatten);
  if (product == nullptr) return;
  const Node* const repeated = product->input(1)->node()->input(0)->node();
  if (!Is(repeated, c10::aten::index_select, {0})) return;
  const Value* const read[] = {product->input(0), repeated->output(), repeated->input(0),
                               repeated->input(2)};
  if (std::ranges::any_of(read, [&](const Value* value) { return aliases.hasWriters(value); })) {
    return;
  }
  ReplaceBy(flatten, kCrossKind, {product->input(0), repeated->input(0), repeated->input(2)});
}

void ReplaceIn(torch::jit::Block* block, const AliasDb& aliases) {
  for (Node* node : block->nodes()) {
    for (torch::jit::Block* inner : node->blocks()) ReplaceIn(inner, aliases);
    if (Is(node, c10::aten::index_select, {1})) ReplacePairs(node, aliases);
    if (node->kind() == c10::aten::flatten) ReplaceCross(node, aliases);
  }
}

}  // namespace

void ReplaceProducts(const std::shared_ptr<torch::jit::Graph>& graph) {
  if (BestVectorProducts() == nullptr) return;
  ReplaceIn(graph->block(), AliasDb(graph));
  torch::jit::EliminateDeadCode(graph);
}

}  // namespace embershard
