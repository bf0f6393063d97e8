// The work of one thread of a lookup: pieces of a batch, one behind the other.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "lookup/bag_sums.h"
#include "lookup/batch_cut.h"
#include "lookup/lookup.h"
#include "lookup/lookup_part.h"

namespace embershard {

// What the threads of a batch share. Pieces write to places of their own.
struct LookupBatch {
  std::span<const LookupPart> parts;

  // Of the sparse inputs; behind them those of the sequences, a list an id.
  std::span<const JaggedRows> lists;

  // Of requests and of examples, pooled; behind them the sequences'.
  std::span<const LookupMatrix> matrices;

  // Sums of further parts, each [bags, columns] at `cut.further_begin`.
  const BatchCut* cut = nullptr;
  float* further = nullptr;
};

// Not thread-safe. Keeps its buffers from batch to batch.
class PieceSums {
 public:
  explicit PieceSums(const BagSumsKernel& kernel) : kernel_(kernel) {}

  // Makes room for the pieces that the batch's cut has met, so that Sum() need not.
  void Reserve(const BatchCut& cut);

  // Sums the rows of `pieces`; divides those that mean and need no further part. kInternal
  // where a row is not one of the table: rows are checked before they are read.
  // `backward`: the pieces before these are next.
  // REQUIRES: Reserve().
  Status Sum(std::span<const LookupPiece> pieces, const LookupBatch& batch, bool backward);

  // How many rows it has summed since it was made.
  uint64_t rows() const { return rows_summed_; }

  // Adds the further parts' sums to those of a first part's piece, and divides.
  static void Add(const LookupPiece& piece, const LookupBatch& batch);

 private:
  Status SumPiece(const LookupPiece& piece, const LookupBatch& batch, bool backward);
  void KeepRowsOf(const LookupPart& part, const LookupPiece& piece, const JaggedRows& lists);
  void Scatter(const LookupPart& part, const LookupPiece& piece, const int64_t* rows,
               BagSumsCall call);
  void Call(WeightType weight_type, const BagSumsCall& call);

  const BagSumsKernel& kernel_;
  uint64_t rows_summed_ = 0;

  // The rows of a piece that are the part's, without those that stand for zeros.
  std::vector<int64_t> rows_;
  std::vector<float> weights_;
  std::vector<int64_t> offsets_;

  // Vectors of a sequence, and the bags of the piece that they are of.
  std::vector<float> values_;
  std::vector<size_t> places_;
};

}  // namespace embershard
