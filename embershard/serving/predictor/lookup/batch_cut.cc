#include "lookup/batch_cut.h"

#include <algorithm>
#include <numeric>

namespace embershard {
namespace {

// Bags of one part that follow one another, so that a small table stays in the second-level cache.
constexpr size_t kPartBags = 512;

// Maximum bags of a piece. Replicas share the work in small pieces.
constexpr size_t kReplicaPieceBags = 32;
constexpr size_t kSequencePieceBags = 256;  // A bag of a sequence has one id.

// Maximum ids of a piece with several bags, so that long lists leave work for other threads.
constexpr int64_t kPieceIds = 2048;

// Minimum size of a task: less is not worth taking it from the list.
constexpr uint64_t kTaskBytes = uint64_t{64} << 10;

uint64_t BytesOf(const LookupPart& part, int64_t ids, size_t bags) {
  // Assumes that a shard's fraction of the ids is its fraction of the rows.
  const double share =
      static_cast<double>(part.row_end - part.row_begin) / static_cast<double>(part.table_rows);
  const double read = static_cast<double>(ids) * share;
  return static_cast<uint64_t>(read * static_cast<double>(part.read_end - part.read_begin)) +
         bags * part.columns * sizeof(float);
}

void CutTasks(DeviceShare* share) {
  uint64_t bytes = 0;
  uint32_t begin = 0;
  const auto size = static_cast<uint32_t>(share->pieces.size());
  for (uint32_t i = 0; i < size; ++i) {
    bytes += share->pieces[i].bytes;
    if (bytes < kTaskBytes && i + 1 < size) continue;
    share->tasks.push_back({begin, i + 1});
    begin = i + 1;
    bytes = 0;
  }
}

}  // namespace

BatchCut::BatchCut(std::span<const LookupPart> parts, size_t devices)
    : shares_(devices), further_begin_(parts.size()) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (order_.size() <= parts[i].matrix) order_.resize(parts[i].matrix + 1);
    order_[parts[i].matrix].push_back(i);
  }
  for (std::vector<size_t>& order : order_) {
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t part) { return parts[part].devices.size() == 1; });
  }
}

void BatchCut::Cut(std::span<const LookupPart> parts, std::span<const JaggedRows> lists,
                   std::span<const LookupMatrix> matrices) {
  choices_.clear();
  for (DeviceShare& share : shares_) {
    share.pieces.clear();
    share.tasks.clear();
    share.adds.clear();
    share.bytes = 0;
  }
  further_size_ = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    further_begin_[i] = further_size_;
    if (parts[i].kept_apart()) further_size_ += matrices[parts[i].matrix].bags * parts[i].columns;
  }
  for (size_t matrix = 0; matrix < order_.size(); ++matrix) {
    const size_t bags = matrices[matrix].bags;
    for (size_t begin = 0; begin < bags; begin += kPartBags) {
      const size_t end = std::min(begin + kPartBags, bags);
      for (const size_t i : order_[matrix]) CutPart(i, parts[i], lists[parts[i].lists], begin, end);
    }
  }
  PlaceReplicas(parts);
  for (DeviceShare& share : shares_) CutTasks(&share);
}

uint64_t BatchCut::bytes() const {
  return std::accumulate(
      shares_.begin(), shares_.end(), uint64_t{0},
      [](uint64_t bytes, const DeviceShare& share) { return bytes + share.bytes; });
}

void BatchCut::CutPart(size_t index, const LookupPart& part, const JaggedRows& lists,
                       size_t bag_begin, size_t bag_end) {
  const size_t max_bags = part.sequence             ? kSequencePieceBags
                          : part.devices.size() > 1 ? kReplicaPieceBags
                                                    : kPartBags;
  while (bag_begin < bag_end) {
    size_t end = std::min(bag_begin + max_bags, bag_end);
    if (lists.offsets[end] - lists.offsets[bag_begin] > kPieceIds) {
      const int64_t* too_far = std::upper_bound(lists.offsets + bag_begin + 1, lists.offsets + end,
                                                lists.offsets[bag_begin] + kPieceIds);
      end = std::max(bag_begin + 1, static_cast<size_t>(too_far - lists.offsets) - 1);
    }
    const int64_t ids = lists.offsets[end] - lists.offsets[bag_begin];
    const uint64_t bytes = std::min<uint64_t>(BytesOf(part, ids, end - bag_begin), UINT32_MAX);
    piece_ids_ = std::max(piece_ids_, static_cast<size_t>(ids));
    piece_bags_ = std::max(piece_bags_, end - bag_begin);
    if (part.sequence && !part.whole_rows()) {
      scattered_values_ = std::max(scattered_values_, (end - bag_begin) * part.columns);
    }
    const LookupPiece piece{static_cast<uint32_t>(index), static_cast<uint32_t>(bag_begin),
                            static_cast<uint32_t>(end), static_cast<uint32_t>(bytes)};
    if (part.devices.size() == 1) {
      Place(part, piece, part.devices[0]);
    } else {
      choices_.push_back(piece);
    }
    bag_begin = end;
  }
}

void BatchCut::Place(const LookupPart& part, const LookupPiece& piece, size_t device) {
  DeviceShare& share = shares_[device];
  share.pieces.push_back(piece);
  share.bytes += piece.bytes;
  if (!part.further.empty()) share.adds.push_back(piece);
}

void BatchCut::PlaceReplicas(std::span<const LookupPart> parts) {
  for (const LookupPiece& piece : choices_) {
    const LookupPart& part = parts[piece.part];
    const size_t device = *std::min_element(
        part.devices.begin(), part.devices.end(),
        [this](size_t left, size_t right) { return shares_[left].bytes < shares_[right].bytes; });
    Place(part, piece, device);
  }
}

}  // namespace embershard
