#include "lookup/piece_sums.h"

#include <algorithm>
#include <string>

#include "lookup/prefetch.h"

namespace embershard {
namespace {

struct RowCheck {
  bool any_foreign = false;       // Some row does not belong to the part, such as kZeroRow.
  bool any_out_of_range = false;  // Some row is neither kZeroRow nor a row of the table.
};

RowCheck CheckRows(const BagSumsKernel& kernel, std::span<const int64_t> rows,
                   const LookupPart& part) {
  const auto any_outside = [&](int64_t begin, int64_t end) {
    return kernel.any_outside(rows.data(), rows.size(), begin, end);
  };
  if (!any_outside(part.row_begin, part.row_end)) return {};
  return {.any_foreign = true, .any_out_of_range = any_outside(kZeroRow, part.table_rows)};
}

Status OutOfRange(const LookupPart& part, const int64_t* begin, const int64_t* end) {
  const int64_t* invalid = std::find_if(
      begin, end, [&part](int64_t row) { return row < kZeroRow || row >= part.table_rows; });
  return Internal("table '" + part.table + "': expected a row in -1.." +
                  std::to_string(part.table_rows - 1) + " for feature '" + part.input + "', got " +
                  std::to_string(*invalid));
}

// Rows need no check: prefetching an invalid address is harmless. Must be inlined, see Prefetch().
[[gnu::always_inline]] inline int64_t PrefetchFirst(const LookupPiece& piece,
                                                    const LookupBatch& batch) {
  const LookupPart& part = batch.parts[piece.part];
  const JaggedRows& lists = batch.lists[part.lists];
  const int64_t begin = lists.offsets[piece.bag_begin];
  const int64_t end = std::min(lists.offsets[piece.bag_end], begin + part.rows_ahead);
  for (int64_t i = begin; i < end; ++i) {
    if (lists.rows[i] < part.row_begin || lists.rows[i] >= part.row_end) continue;
    const std::byte* row = part.table_begin + static_cast<size_t>(lists.rows[i]) * part.row_bytes;
    Prefetch(row + part.read_begin, row + part.read_end);
  }
  return end - begin;
}

void AddPart(const LookupPiece& piece, const LookupPart& part, const LookupPart& further,
             const float* sums, const LookupMatrix& out) {
  const size_t begin = std::max(part.column, further.column);
  const size_t end = std::min(part.column + part.columns, further.column + further.columns);
  for (size_t bag = piece.bag_begin; bag < piece.bag_end; ++bag) {
    const float* from = sums + bag * further.columns + (begin - further.column);
    float* to = out.values + bag * out.columns + begin;
    for (size_t i = 0; i < end - begin; ++i) to[i] += from[i];
  }
}

}  // namespace

void PieceSums::Reserve(const BatchCut& cut) {
  // One element more than there are ids, because KeepRowsOf() and Scatter() write one too many.
  rows_.resize(std::max(rows_.size(), cut.piece_ids() + 1));
  weights_.resize(rows_.size());
  offsets_.resize(std::max(offsets_.size(), cut.piece_bags() + 1));
  values_.resize(std::max(values_.size(), cut.scattered_values()));
  if (!values_.empty()) places_.resize(offsets_.size());
}

Status PieceSums::Sum(std::span<const LookupPiece> pieces, const LookupBatch& batch,
                      bool backward) {
  size_t next = 0;
  int64_t ahead = 0;  // Rows of pieces before `next` that are prefetched, but not summed yet.
  for (const LookupPiece& piece : pieces) {
    const LookupPart& part = batch.parts[piece.part];
    while (next < pieces.size() && ahead < part.rows_ahead) {
      ahead += PrefetchFirst(pieces[next], batch);
      ++next;
    }
    const bool last_backward = backward && &piece == &pieces.back();
    if (Status status = SumPiece(piece, batch, last_backward); !status.ok()) return status;
    const int64_t* offsets = batch.lists[part.lists].offsets;
    ahead -= std::min(part.rows_ahead, offsets[piece.bag_end] - offsets[piece.bag_begin]);
  }
  return {};
}

Status PieceSums::SumPiece(const LookupPiece& piece, const LookupBatch& batch, bool backward) {
  const LookupPart& part = batch.parts[piece.part];
  const JaggedRows& lists = batch.lists[part.lists];
  const LookupMatrix& out = batch.matrices[part.matrix];
  const int64_t* const begin = lists.rows + lists.offsets[piece.bag_begin];
  const int64_t* const end = lists.rows + lists.offsets[piece.bag_end];
  const RowCheck check = CheckRows(kernel_, {begin, end}, part);
  // Ids were checked when they were converted to rows. A row out of range is a bug, but must not
  // read other memory.
  if (check.any_out_of_range) return OutOfRange(part, begin, end);

  const int64_t* const whole = lists.offsets + piece.bag_begin;
  BagSumsCall call{
      .table = part.table_begin,
      .row_bytes = part.row_bytes,
      .first_column = part.table_column,
      .columns = part.columns,
      .rows = lists.rows,
      .offsets = whole,
      .weights = part.weighted ? lists.weights : nullptr,
      .bags = piece.bag_end - piece.bag_begin,
      .mean_offsets = part.pooling == Pooling::kMean && part.whole_rows() ? whole : nullptr,
      .rows_ahead = part.rows_ahead,
      .rows_far = part.rows_far,
      .backward = backward,
      .sums = out.values + piece.bag_begin * out.columns + part.column,
      .stride = out.columns,
  };
  if (part.sequence && check.any_foreign && !part.whole_rows()) {
    Scatter(part, piece, begin, call);
    return {};
  }
  if (part.kept_apart()) {
    call.sums =
        batch.further + batch.cut->further_begin(piece.part) + piece.bag_begin * part.columns;
    call.stride = part.columns;
  }
  if (check.any_foreign) {
    KeepRowsOf(part, piece, lists);
    call.rows = rows_.data();
    call.offsets = offsets_.data();
    call.weights = part.weighted ? weights_.data() : nullptr;
  }
  Call(part.weight_type, call);
  return {};
}

void PieceSums::Call(WeightType weight_type, const BagSumsCall& call) {
  rows_summed_ += static_cast<uint64_t>(call.offsets[call.bags] - call.offsets[0]);
  switch (weight_type) {
    case WeightType::kInt8:
      return kernel_.int8(call);
    case WeightType::kInt4:
      return kernel_.int4(call);
    case WeightType::kFp16:
      return kernel_.fp16(call);
    case WeightType::kFp32:
      return kernel_.fp32(call);
  }
}

void PieceSums::KeepRowsOf(const LookupPart& part, const LookupPiece& piece,
                           const JaggedRows& lists) {
  // To avoid mispredicted branches, every row is written, but `size` grows only for the part's.
  size_t size = 0;
  offsets_[0] = 0;
  for (size_t bag = piece.bag_begin; bag < piece.bag_end; ++bag) {
    const int64_t bag_end = lists.offsets[bag + 1];
    for (int64_t i = lists.offsets[bag]; i < bag_end; ++i) {
      const int64_t row = lists.rows[i];
      rows_[size] = row;
      if (part.weighted) weights_[size] = lists.weights[i];
      size += row >= part.row_begin && row < part.row_end;
    }
    offsets_[bag + 1 - piece.bag_begin] = static_cast<int64_t>(size);
  }
}

// Sums into a buffer first, because other parts write the vectors between these.
void PieceSums::Scatter(const LookupPart& part, const LookupPiece& piece, const int64_t* rows,
                        BagSumsCall call) {
  float* const out = call.sums;
  const size_t stride = call.stride;
  size_t size = 0;
  size_t bags = 0;
  offsets_[0] = 0;
  for (size_t bag = 0; bag < piece.bag_end - piece.bag_begin; ++bag) {
    const bool own = rows[bag] >= part.row_begin && rows[bag] < part.row_end;
    rows_[size] = rows[bag];
    places_[bags] = bag;
    size += own;
    bags += own || (rows[bag] == kZeroRow && part.first());
    offsets_[bags] = static_cast<int64_t>(size);
  }
  call.rows = rows_.data();
  call.offsets = offsets_.data();
  call.bags = bags;
  call.sums = values_.data();
  call.stride = part.columns;
  Call(part.weight_type, call);
  for (size_t i = 0; i < bags; ++i) {
    std::copy_n(values_.data() + i * part.columns, part.columns, out + places_[i] * stride);
  }
}

void PieceSums::Add(const LookupPiece& piece, const LookupBatch& batch) {
  const LookupPart& part = batch.parts[piece.part];
  const LookupMatrix& out = batch.matrices[part.matrix];
  for (const size_t index : part.further) {
    AddPart(piece, part, batch.parts[index], batch.further + batch.cut->further_begin(index), out);
  }
  if (part.pooling != Pooling::kMean) return;
  const int64_t* offsets = batch.lists[part.lists].offsets;
  for (size_t bag = piece.bag_begin; bag < piece.bag_end; ++bag) {
    const int64_t length = offsets[bag + 1] - offsets[bag];
    if (length <= 1) continue;
    const float factor = 1.0F / static_cast<float>(length);
    float* to = out.values + bag * out.columns + part.column;
    for (size_t i = 0; i < part.columns; ++i) to[i] *= factor;
  }
}

}  // namespace embershard
