// The loop of a linear layer of vector_products.h.
//
// Weights are packed in panels of kRegisters vectors of outputs. The weights of kSummedInputs
// inputs of a panel, 32 KiB with AVX2, are multiplied with all rows. A tile of kTileRows rows is
// multiplied at a time, with its sums in registers. Meanwhile the next weights are prefetched into
// the L2 cache.

#pragma once

#include <algorithm>

#include "dense/vector_products.h"
#include "dense/vector_products_loop.h"

namespace embershard {
namespace {

constexpr size_t kSummedInputs = 512;
constexpr size_t kLineFloats = 16;

struct PanelPart {
  const float* weights = nullptr;
  size_t input = 0;
  size_t inputs = 0;
  size_t output = 0;
  size_t outputs = 0;
  const float* next = nullptr;  // The weights to multiply after these, or null.
};

// The part's products are added to the sums of kTile rows from `row` on.
template <class V, size_t kTile, size_t kVectors>
[[gnu::always_inline]] inline void AddTile(const LinearCall& call, const PanelPart& part,
                                           size_t row) {
  const float* const x = call.vectors + row * call.dim + part.input;
  const size_t dim = call.dim;
  const size_t stride = call.stride;
  float* const to = call.products + row * stride + part.output;
  const auto lanes = [&](size_t v) { return std::min(V::kLanes, part.outputs - v * V::kLanes); };
  const bool first = part.input == 0;
  const bool last = part.input + part.inputs == dim;
  typename V::Floats sums[kTile][kVectors];
  for (size_t i = 0; i < kTile; ++i) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[i][v] = first ? V::Zero() : V::LoadFirst(to + i * stride + v * V::kLanes, lanes(v));
    }
    for (size_t j = 0; !first && j < part.outputs; j += kLineFloats) {
      __builtin_prefetch(to + (kTile + i) * stride + j);  // Sums of the next tile.
    }
  }
  for (size_t k = 0; k < part.inputs; ++k) {
    typename V::Floats weights[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      weights[v] = V::Load(part.weights + (k * kVectors + v) * V::kLanes);
    }
    for (size_t i = 0; i < kTile; ++i) {
      const auto value = V::Set(x[i * dim + k]);
      for (size_t v = 0; v < kVectors; ++v) {
        sums[i][v] = V::MultiplyAdd(value, weights[v], sums[i][v]);
      }
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const bool biased = last && call.bias != nullptr;
    const auto bias =
        biased ? V::LoadFirst(call.bias + part.output + v * V::kLanes, lanes(v)) : V::Zero();
    for (size_t i = 0; i < kTile; ++i) {
      if (biased) sums[i][v] = V::Add(sums[i][v], bias);
      if (last && call.relu) sums[i][v] = V::Rectified(sums[i][v]);
      V::Store(to + i * stride + v * V::kLanes, 0, lanes(v), sums[i][v]);
    }
  }
}

// There are fewer rows than a tile has.
template <class V, size_t kTile, size_t kVectors>
void AddLastRows(const LinearCall& call, const PanelPart& part, size_t row) {
  if (call.count - row == kTile) return AddTile<V, kTile, kVectors>(call, part, row);
  if constexpr (kTile > 1) AddLastRows<V, kTile - 1, kVectors>(call, part, row);
}

template <class V, size_t kVectors>
void AddPart(size_t vectors, const LinearCall& call, const PanelPart& part) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) return AddPart<V, kVectors - 1>(vectors, call, part);
  }
  const size_t tiles = call.count / kTileRows;
  const size_t lines = part.inputs * kVectors * V::kLanes / kLineFloats;
  const size_t tile_lines = tiles > 0 ? lines / tiles + 1 : 0;
  for (size_t tile = 0; tile < tiles; ++tile) {
    const size_t end = part.next == nullptr ? 0 : std::min(lines, (tile + 1) * tile_lines);
    for (size_t line = tile * tile_lines; line < end; ++line) {
      __builtin_prefetch(part.next + line * kLineFloats, 0, /*second cache*/ 2);
    }
    AddTile<V, kTileRows, kVectors>(call, part, tile * kTileRows);
  }
  AddLastRows<V, kTileRows - 1, kVectors>(call, part, tiles * kTileRows);
}

template <class V>
constexpr size_t kPanelOutputs = V::kRegisters * V::kLanes;

template <class V>
void PackWeights(const float* weights, size_t outputs, size_t dim, float* packed) {
  for (size_t first = 0; first < outputs; first += kPanelOutputs<V>) {
    MakePanel<V>(weights + first * dim, std::min(kPanelOutputs<V>, outputs - first), dim,
                 packed + first * dim);
  }
}

template <class V>
void Linear(const LinearCall& call) {
  static_assert(kPackedOutputs % kPanelOutputs<V> == 0);
  const auto weights = [&](size_t output, size_t input) {
    const size_t outputs = std::min(kPanelOutputs<V>, call.outputs - output);
    return call.packed + output * call.dim + input * RoundedUp<V>(outputs);
  };
  for (size_t input = 0; input < call.dim; input += kSummedInputs) {
    const size_t inputs = std::min(kSummedInputs, call.dim - input);
    for (size_t output = 0; output < call.outputs; output += kPanelOutputs<V>) {
      const size_t outputs = std::min(kPanelOutputs<V>, call.outputs - output);
      const float* next = nullptr;
      if (output + outputs < call.outputs) {
        next = weights(output + outputs, input);
      } else if (input + inputs < call.dim) {
        next = weights(0, input + inputs);
      }
      AddPart<V, V::kRegisters>(RoundedUp<V>(outputs) / V::kLanes, call,
                                {weights(output, input), input, inputs, output, outputs, next});
    }
  }
}

}  // namespace
}  // namespace embershard
