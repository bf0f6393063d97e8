// One call of FBGEMM's quantized lookup: the lookups of one device that share scope,
// pooling and whether they are weighted. (The operator pools a whole call alike.)
// Private to this room: includes torch.

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
  Pooling pooling = Pooling::kSum;
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
  size_t column = 0;        // In the scope's pooled matrix.
};

// Not thread-safe. Keeps its buffers from batch to batch.
class FbgemmCall {
 public:
  // `tables` must outlive the call. REQUIRES: `parts` is not empty, ascending by column.
  FbgemmCall(const FbgemmCallKind& kind, const TableStore& tables,
             std::vector<FbgemmLookupPart> parts);

  // Fills the columns of its parts. Throws what torch throws.
  Status Run(std::span<const JaggedRows> sparse, PooledMatrix request, PooledMatrix example);

 private:
  // Columns that lie side by side in the operator's output and in the matrix.
  struct Columns {
    size_t from = 0;
    size_t to = 0;
    size_t count = 0;
  };

  Status Merge(std::span<const JaggedRows> sparse, size_t bags);
  void Scatter(const float* pooled, PooledMatrix out) const;

  const FbgemmCallKind kind_;
  const std::vector<FbgemmLookupPart> parts_;
  std::vector<Columns> columns_;
  size_t total_dim_ = 0;

  c10::OperatorHandle operator_;
  std::vector<c10::IValue> arguments_;  // Those that stay; the others are set by Run().
  size_t rows_position_ = 0;            // In arguments_.
  size_t offsets_position_ = 0;
  size_t weights_position_ = 0;

  // The operator's inputs, part behind part.
  std::vector<int64_t> rows_;     // [ids of all parts]
  std::vector<int64_t> offsets_;  // [parts * bags + 1]
  std::vector<float> weights_;    // [ids of all parts], or empty.
  std::vector<c10::IValue> stack_;
};

}  // namespace embershard

#endif  // EMBERSHARD_LOOKUP_FBGEMM_CALL_H_
