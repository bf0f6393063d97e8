#include "lookup/batch_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace embershard {
namespace {

// A part of an int8 table of 100 rows and 4 columns, looked up by the input of that number.
LookupPart PartOf(size_t input, std::vector<size_t> devices) {
  LookupPart part;
  part.lists = input;
  part.matrix = MatrixOf(Scope::kExample);
  part.table_rows = 100;
  part.row_end = 100;
  part.row_bytes = 8;
  part.read_end = 8;
  part.columns = 4;
  part.devices = std::move(devices);
  return part;
}

TEST(LookupPart, RowsOfLargeTablesAloneAreAskedForFarAhead) {
  LookupPart part = PartOf(0, {0});  // 8 bytes a row.
  part.row_end = (int64_t{8} << 20) / 8;
  SetRowsAhead(&part);
  EXPECT_EQ(part.rows_far, 64);
  --part.row_end;
  SetRowsAhead(&part);
  EXPECT_EQ(part.rows_far, 0);
  EXPECT_EQ(part.rows_ahead, 64);
}

// Lists of the same length.
class EqualLists {
 public:
  EqualLists(size_t bags, int64_t length) : offsets_(bags + 1) {
    for (size_t bag = 0; bag <= bags; ++bag) offsets_[bag] = static_cast<int64_t>(bag) * length;
  }

  JaggedRows view() const {
    return {.rows = nullptr, .offsets = offsets_.data(), .weights = nullptr};
  }

 private:
  std::vector<int64_t> offsets_;
};

std::vector<LookupMatrix> Matrices(size_t requests, size_t examples, size_t ids = 0) {
  return {{nullptr, requests, 4}, {nullptr, examples, 4}, {nullptr, ids, 4}};
}

// How often each bag of each part comes in the shares.
std::map<std::pair<size_t, size_t>, int> BagsOf(const BatchCut& cut) {
  std::map<std::pair<size_t, size_t>, int> bags;
  for (const DeviceShare& share : cut.shares()) {
    for (const LookupPiece& piece : share.pieces) {
      for (size_t bag = piece.bag_begin; bag < piece.bag_end; ++bag) ++bags[{piece.part, bag}];
    }
  }
  return bags;
}

TEST(BatchCut, EveryBagOfEveryPartIsDoneOnceAlsoInTheNextBatch) {
  const std::vector<LookupPart> parts = {PartOf(0, {0}), PartOf(1, {1, 2}), PartOf(0, {2})};
  BatchCut cut(parts, 3);
  for (const auto& [bags, length] : {std::pair(100, 5), std::pair(33, 3000), std::pair(1, 0)}) {
    const EqualLists lists(static_cast<size_t>(bags), length);
    const std::vector<JaggedRows> sparse = {lists.view(), lists.view()};
    cut.Cut(parts, sparse, Matrices(7, static_cast<size_t>(bags)));
    const auto done = BagsOf(cut);
    EXPECT_EQ(done.size(), static_cast<size_t>(3 * bags));
    for (const auto& [bag, times] : done) EXPECT_EQ(times, 1);
  }
}

TEST(BatchCut, TasksAreThePiecesInOrder) {
  const std::vector<LookupPart> parts = {PartOf(0, {0}), PartOf(0, {0})};
  BatchCut cut(parts, 1);
  const EqualLists lists(5000, 9);
  cut.Cut(parts, std::vector{lists.view()}, Matrices(0, 5000));
  const DeviceShare& share = cut.shares()[0];
  uint32_t next = 0;
  for (const LookupTask& task : share.tasks) {
    EXPECT_EQ(task.piece_begin, next);
    EXPECT_LT(task.piece_begin, task.piece_end);
    next = task.piece_end;
  }
  EXPECT_EQ(next, share.pieces.size());
  EXPECT_GT(share.tasks.size(), 4U);  // 0.9 MB are enough for several tasks.
}

TEST(BatchCut, PiecesOf512BagsOfAPartFollowOneAnother) {
  const std::vector<LookupPart> parts = {PartOf(0, {0}), PartOf(0, {0})};
  BatchCut cut(parts, 1);
  const EqualLists lists(600, 1);
  cut.Cut(parts, std::vector{lists.view()}, Matrices(0, 600));
  std::vector<std::pair<uint32_t, uint32_t>> runs;  // Part and first bag.
  for (const LookupPiece& piece : cut.shares()[0].pieces) {
    if (runs.empty() || runs.back().first != piece.part) {
      runs.emplace_back(piece.part, piece.bag_begin);
    }
  }
  const std::vector<std::pair<uint32_t, uint32_t>> expected = {{0, 0}, {1, 0}, {0, 512}, {1, 512}};
  EXPECT_EQ(runs, expected);
}

TEST(BatchCut, ASmallBatchIsOneTask) {
  const std::vector<LookupPart> parts = {PartOf(0, {0}), PartOf(0, {0}), PartOf(0, {0})};
  BatchCut cut(parts, 1);
  const EqualLists lists(1, 3);
  cut.Cut(parts, std::vector{lists.view()}, Matrices(0, 1));
  EXPECT_EQ(cut.shares()[0].pieces.size(), 3U);
  EXPECT_EQ(cut.shares()[0].tasks.size(), 1U);
  EXPECT_EQ(cut.bytes(), 3U * (3 * 8 + 4 * 4));  // Three rows read and four floats written each.
}

TEST(BatchCut, ReplicasTakeWhatEvensTheDevicesOut) {
  // Device 0 has work of its own; the replicas' goes to device 1 until it has as much.
  const std::vector<LookupPart> parts = {PartOf(0, {0, 1}), PartOf(0, {0})};
  BatchCut cut(parts, 2);
  const EqualLists lists(32 * 40, 20);
  cut.Cut(parts, std::vector{lists.view()}, Matrices(0, 32 * 40));
  EXPECT_EQ(cut.shares()[0].bytes, cut.shares()[1].bytes);
}

TEST(BatchCut, ReplicasOfATableWithoutCompanyShareItsBags) {
  const std::vector<LookupPart> parts = {PartOf(0, {0, 1, 2, 3})};
  BatchCut cut(parts, 4);
  const EqualLists lists(32 * 8, 20);
  cut.Cut(parts, std::vector{lists.view()}, Matrices(0, 32 * 8));
  for (const DeviceShare& share : cut.shares()) EXPECT_EQ(share.pieces.size(), 2U);
}

TEST(BatchCut, TheDeviceOfTheFirstRowsAddsTheOthers) {
  std::vector<LookupPart> parts = {PartOf(0, {0}), PartOf(0, {1}), PartOf(0, {1})};
  parts[0].row_begin = 60;
  parts[1].row_end = 30;
  parts[1].further = {2, 0};
  parts[2].row_begin = 30;
  parts[2].row_end = 60;
  BatchCut cut(parts, 2);
  const EqualLists lists(600, 1);
  cut.Cut(parts, std::vector{lists.view()}, Matrices(0, 600));
  EXPECT_TRUE(cut.shares()[0].adds.empty());
  ASSERT_EQ(cut.shares()[1].adds.size(), 2U);  // Bags 0 .. 512 and 512 .. 600.
  for (const LookupPiece& piece : cut.shares()[1].adds) EXPECT_EQ(piece.part, 1U);
  EXPECT_EQ(cut.further_size(), 2U * 600 * 4);
  EXPECT_NE(cut.further_begin(0), cut.further_begin(2));
}

TEST(BatchCut, ASequenceIsCutByIdsAndNothingOfItIsAdded) {
  std::vector<LookupPart> parts = {PartOf(0, {0}), PartOf(0, {1})};
  for (LookupPart& part : parts) {
    part.matrix = kFirstSequence;
    part.sequence = true;
  }
  parts[0].row_end = 60;
  parts[1].row_begin = 60;
  BatchCut cut(parts, 2);
  const EqualLists ids(1000, 1);
  cut.Cut(parts, std::vector{ids.view()}, Matrices(2, 3, 1000));
  EXPECT_EQ(BagsOf(cut).size(), 2000U);
  EXPECT_EQ(cut.further_size(), 0U);
  for (const DeviceShare& share : cut.shares()) EXPECT_TRUE(share.adds.empty());
  EXPECT_EQ(cut.scattered_values(), cut.piece_bags() * 4);
}

}  // namespace
}  // namespace embershard
