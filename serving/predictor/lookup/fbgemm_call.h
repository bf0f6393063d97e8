// One call of FBGEMM's quantized lookup: the lookups of one device that share scope and
// whether they are weighted. Private to this room: includes torch.
//
// The operator is asked for sums of real rows only. Its own means would make a call for
// each pooling, and not all of its kernels know a row -1 (those for fp16 that it takes on
// processors without AVX2 give up at the first). So rows that stand for zeros are left
// out here, and a mean is divided here by the length of the whole list.

#ifndef EMBERSHARD_LOOKUP_FBGEMM_CALL_H_
#define EMBERSHARD_LOOKUP_FBGEMM_CALL_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "lookup/lookup.h"
#include "package/package.h"

namespace embershard {

struct FbgemmCallKind {
  Scope scope = Scope::kExample;
  bool weighted = false;

  auto operator<=>(const FbgemmCallKind&) const = default;
};

// One lookup of the schema and the table it goes to.
struct FbgemmLookupPart {
  size_t sparse_input = 0;
  std::string input;  // Its name.
  std::string table;
  int64_t table_rows = 0;
  int64_t dim = 0;
  WeightType weights = WeightType::kInt8;
  size_t offset_bytes = 0;  // Of the table, in the store.
  Pooling pooling = Pooling::kSum;
  size_t column = 0;  // In the scope's pooled matrix.
};

// Not thread-safe. Keeps its buffers from batch to batch.
class FbgemmCall {
 public:
  // `tables` must outlive the call. REQUIRES: `parts` is not empty.
  FbgemmCall(const FbgemmCallKind& kind, const TableStore& tables,
             std::vector<FbgemmLookupPart> parts);

  // Fills the columns of its parts. Throws what torch throws.
  Status Run(std::span<const JaggedRows> sparse, PooledMatrix request, PooledMatrix example);

  // How many rows the last Run() looked up.
  size_t rows() const { return rows_.size(); }

 private:
  Status Merge(std::span<const JaggedRows> sparse, size_t bags);
  Status MergePart(const FbgemmLookupPart& part, const JaggedRows& lists, size_t bags);
  void Scatter(const float* sums, std::span<const JaggedRows> sparse, PooledMatrix out) const;

  const FbgemmCallKind kind_;
  const std::vector<FbgemmLookupPart> parts_;
  size_t total_dim_ = 0;

  c10::OperatorHandle operator_;
  std::vector<c10::IValue> arguments_;  // Those that stay; the others are set by Run().
  size_t rows_position_ = 0;            // In arguments_.
  size_t offsets_position_ = 0;
  size_t weights_position_ = 0;

  // The operator's inputs, part behind part, without rows that stand for zeros.
  std::vector<int64_t> rows_;     // [ids of all parts]
  std::vector<int64_t> offsets_;  // [parts * bags + 1]
  std::vector<float> weights_;    // [ids of all parts], or empty.
  std::vector<c10::IValue> stack_;
};

}  // namespace embershard

#endif  // EMBERSHARD_LOOKUP_FBGEMM_CALL_H_
