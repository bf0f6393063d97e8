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

// Data that the threads of a batch share. No two pieces write to the same memory.
struct LookupBatch {
  std::span<const LookupPart> parts;

  // Lists of the sparse inputs, followed by those of the sequences, which have one id each.
  std::span<const JaggedRows> lists;

  // The pooled matrices of requests and of examples, followed by those of the sequences.
  std::span<const LookupMatrix> matrices;

  // Sums of further parts, each [bags, columns] at `cut.further_begin`.
  const BatchCut* cut = nullptr;
  float* further = nullptr;
};

// Not thread-safe. Keeps its buffers from batch to batch.
class PieceSums {
 public:
  explicit PieceSums(const BagSumsKernel& kernel) : kernel_(kernel) {}

  // Lets Sum() allocate nothing for the pieces that `cut` has made so far.
  void Reserve(const BatchCut& cut);

  // Divides the sums of mean pooling that need no further part. Fails with kInternal for a row that
  // the table does not have. `backward`: this thread continues with pieces before these. REQUIRES:
  // Reserve().
  Status Sum(std::span<const LookupPiece> pieces, const LookupBatch& batch, bool backward);

  uint64_t rows() const { return rows_summed_; }

  // Adds further parts' sums to those of a first part, and divides for mean pooling.
  static void Add(const LookupPiece& piece, const LookupBatch& batch);

 private:
  Status SumPiece(const LookupPiece& piece, const LookupBatch& batch, bool backward);
  void KeepRowsOf(const LookupPart& part, const LookupPiece& piece, const JaggedRows& lists);
  void Scatter(const LookupPart& part, const LookupPiece& piece, const int64_t* rows,
               BagSumsCall call);
  void Call(WeightType weight_type, const BagSumsCall& call);

  const BagSumsKernel& kernel_;
  uint64_t rows_summed_ = 0;

  // The rows of a piece that belong to the part, without kZeroRow.
  std::vector<int64_t> rows_;
  std::vector<float> weights_;
  std::vector<int64_t> offsets_;

  // Vectors of a sequence, and the piece's bag of each vector.
  std::vector<float> values_;
  std::vector<size_t> places_;
};

}  // namespace embershard
