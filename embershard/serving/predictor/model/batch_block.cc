#include "model/batch_block.h"

#include <cstring>

#include "base/divide_up.h"

namespace embershard {
namespace {

constexpr size_t Aligned(size_t bytes) { return RoundUp(bytes, kDeviceRowAlignment); }

template <class T>
T* At(std::byte* memory, size_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

template <class T>
const T* At(const std::byte* memory, size_t offset) {
  return reinterpret_cast<const T*>(memory + offset);
}

size_t BagsOf(const LookupCall& call, const Slot& slot) {
  return call.scope == Scope::kRequest ? slot.requests : slot.examples;
}

}  // namespace

size_t BatchBlock::BytesMax(const Slot& slot, size_t home) const {
  constexpr size_t kPadding = 3 * kDeviceRowAlignment;
  size_t bytes = 4 * (slot.request_dense.size() + slot.example_dense.size()) +
                 8 * slot.request_of_example.size() + kPadding;
  for (const SequenceSpec& sequence : schema_.sequences) {
    bytes += 8 * slot.sparse[sequence.sparse_input].offsets.size() + kDeviceRowAlignment;
  }
  for (const LookupCall& call : layout_.homes[home].calls) {
    bytes += kPadding + sizeof(int32_t);
    for (const CallTable& table : call.tables) {
      const SlotSparse& lists = slot.sparse[table.sparse_input];
      bytes += sizeof(int32_t) * (lists.rows.size() + BagsOf(call, slot));
      if (call.weighted) bytes += sizeof(float) * lists.rows.size();
    }
  }
  return bytes;
}

template <class T>
size_t BatchBlock::Append(const std::vector<T>& values, std::byte* memory) {
  const size_t begin = end_;
  if (!values.empty()) std::memcpy(memory + begin, values.data(), values.size() * sizeof(T));
  end_ = Aligned(begin + values.size() * sizeof(T));
  return begin - section_begin_;
}

void BatchBlock::Fill(const Slot& slot, size_t home, std::byte* memory) {
  requests_ = slot.requests;
  examples_ = slot.examples;
  end_ = 0;
  const std::vector<LookupCall>& calls = layout_.homes[home].calls;
  calls_.assign(calls.size(), {});
  for (size_t device = 0; device < sections_.size(); ++device) {
    section_begin_ = end_;
    if (device == home) {
      request_dense_ = Append(slot.request_dense, memory);
      example_dense_ = Append(slot.example_dense, memory);
      request_of_example_ = Append(slot.request_of_example, memory);
      sequence_offsets_.clear();
      for (const SequenceSpec& sequence : schema_.sequences) {
        sequence_offsets_.push_back(Append(slot.sparse[sequence.sparse_input].offsets, memory));
      }
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].device == device) calls_[i] = FillCall(calls[i], slot, memory);
    }
    sections_[device] = {.begin = section_begin_, .bytes = end_ - section_begin_};
  }
}

BatchBlock::CallPlace BatchBlock::FillCall(const LookupCall& call, const Slot& slot,
                                           std::byte* memory) {
  CallPlace place{.bags = BagsOf(call, slot), .weighted = call.weighted};
  // Offsets come first, because their number is known.
  const size_t offsets_begin = end_;
  place.offsets = end_ - section_begin_;
  end_ = Aligned(end_ + sizeof(int32_t) * (call.tables.size() * place.bags + 1));
  place.rows = end_ - section_begin_;
  const std::vector<PackedShard>& shards = layout_.shards[call.device];

  auto* offset = At<int32_t>(memory, offsets_begin);
  auto* const rows = At<int32_t>(memory, end_);
  size_t ids = 0;
  *offset++ = 0;
  for (const CallTable& table : call.tables) {
    const PackedShard& shard = shards[table.shard];
    const SlotSparse& lists = slot.sparse[table.sparse_input];
    const auto zero_row = static_cast<int32_t>(shard.zero_row());
    for (size_t bag = 0; bag < place.bags; ++bag) {
      for (int64_t at = lists.offsets[bag]; at < lists.offsets[bag + 1]; ++at) {
        const int64_t row = lists.rows[static_cast<size_t>(at)];
        // kZeroRow is in no shard.
        const bool in_shard = row >= shard.row_begin && row < shard.row_end;
        if (!in_shard && table.skip_missing) continue;
        rows[ids++] = in_shard ? static_cast<int32_t>(row - shard.row_begin) : zero_row;
      }
      *offset++ = static_cast<int32_t>(ids);
    }
  }
  place.ids = ids;
  end_ = Aligned(end_ + sizeof(int32_t) * ids);
  if (!call.weighted) return place;

  place.weights = end_ - section_begin_;
  auto* weight = At<float>(memory, end_);
  for (const CallTable& table : call.tables) {
    const PackedShard& shard = shards[table.shard];
    const SlotSparse& lists = slot.sparse[table.sparse_input];
    for (size_t at = 0; at < lists.rows.size(); ++at) {
      const bool in_shard = lists.rows[at] >= shard.row_begin && lists.rows[at] < shard.row_end;
      if (in_shard || !table.skip_missing) *weight++ = lists.weights[at];
    }
  }
  end_ = Aligned(end_ + sizeof(float) * ids);
  return place;
}

CallLists BatchBlock::ListsOf(size_t call, const std::byte* section) const {
  const CallPlace& place = calls_[call];
  return {.bags = place.bags,
          .ids = place.ids,
          .rows = At<int32_t>(section, place.rows),
          .offsets = At<int32_t>(section, place.offsets),
          .weights = place.weighted ? At<float>(section, place.weights) : nullptr};
}

void BatchBlock::SetInputs(std::byte* section, DenseProgramInputs* inputs,
                           std::vector<SequenceInput>* sequences) const {
  inputs->requests = requests_;
  inputs->examples = examples_;
  inputs->request_dense = At<float>(section, request_dense_);
  inputs->example_dense = At<float>(section, example_dense_);
  inputs->request_of_example = At<int64_t>(section, request_of_example_);
  for (size_t i = 0; i < sequence_offsets_.size(); ++i) {
    (*sequences)[i].offsets = At<int64_t>(section, sequence_offsets_[i]);
  }
}

}  // namespace embershard
