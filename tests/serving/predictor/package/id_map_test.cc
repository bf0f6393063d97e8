#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "package/id_maps.h"

namespace embershard {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

using Ids = std::vector<int64_t>;

IdMapSpec Spec(int64_t rows, UnknownIds unknown = UnknownIds::kReject) {
  IdMapSpec spec;
  spec.rows = rows;
  spec.unknown = unknown;
  if (unknown == UnknownIds::kOov) spec.oov_row = rows - 1;
  return spec;
}

IdMapSpec HashSpec(int64_t rows, uint64_t seed = 0) {
  IdMapSpec spec;
  spec.kind = IdMapKind::kHash;
  spec.rows = rows;
  spec.seed = seed;
  return spec;
}

std::unique_ptr<IdMap> MakeVocabMap(IdMapSpec spec, std::shared_ptr<const Vocabulary> vocabulary) {
  spec.kind = IdMapKind::kVocab;
  return MakeIdMap(spec, std::move(vocabulary));
}

struct Mapped {
  Ids rows;
  size_t unknown = 0;
};

Mapped MapAll(const IdMap& map, const Ids& ids) {
  Mapped mapped{.rows = Ids(ids.size(), -99)};
  mapped.unknown = map.Map({ids.data(), ids.size()}, mapped.rows.data());
  return mapped;
}

size_t FirstRefused(const IdMap& map, const Ids& ids) {
  return map.FirstRefused({ids.data(), ids.size()});
}

// The bytes of ids/<name>.safetensors, written here and not by the code under test.
std::string VocabularyBytes(const Ids& keys, const Ids& rows) {
  const size_t bytes = keys.size() * sizeof(int64_t);
  const nlohmann::json header = {
      {"keys", {{"dtype", "I64"}, {"shape", {keys.size()}}, {"data_offsets", {0, bytes}}}},
      {"rows", {{"dtype", "I64"}, {"shape", {rows.size()}}, {"data_offsets", {bytes, 2 * bytes}}}}};
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string file(1, static_cast<char>(text.size()));
  file.append(7, '\0').append(text);
  file.append(reinterpret_cast<const char*>(keys.data()), bytes);
  file.append(reinterpret_cast<const char*>(rows.data()), bytes);
  return file;
}

Result<std::shared_ptr<const Vocabulary>> Parse(const Ids& keys, const Ids& rows) {
  return Vocabulary::Parse(VocabularyBytes(keys, rows), "ids/a.safetensors");
}

std::shared_ptr<const Vocabulary> MakeVocabulary(const Ids& keys, const Ids& rows) {
  auto parsed = Parse(keys, rows);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return *parsed;
}

TEST(IdentityMap, GivesTheIdItself) {
  const auto map = MakeIdMap(Spec(5, UnknownIds::kReject));
  const Mapped mapped = MapAll(*map, {4, 0, 3});
  EXPECT_EQ(mapped.rows, (Ids{4, 0, 3}));
  EXPECT_EQ(mapped.unknown, 0U);
  EXPECT_EQ(FirstRefused(*map, {4, 0, 3}), 3U);
}

TEST(IdentityMap, RefusesWhatIsNoRow) {
  const auto map = MakeIdMap(Spec(5, UnknownIds::kReject));
  EXPECT_EQ(FirstRefused(*map, {0, 5, -1}), 1U);
  EXPECT_EQ(FirstRefused(*map, {-1}), 0U);
  EXPECT_EQ(FirstRefused(*map, {0, kLeast}), 1U);
  EXPECT_EQ(FirstRefused(*map, {0, kMost}), 1U);
}

TEST(IdentityMap, GivesUnknownIdsTheLastRowUnderOov) {
  const auto map = MakeIdMap(Spec(5, UnknownIds::kOov));
  // 4 is the oov row's own number, and no known id.
  const Mapped mapped = MapAll(*map, {3, 4, -7, kMost});
  EXPECT_EQ(mapped.rows, (Ids{3, 4, 4, 4}));
  EXPECT_EQ(mapped.unknown, 3U);
  EXPECT_EQ(FirstRefused(*map, {3, 4, -7, kMost}), 4U);
}

TEST(IdentityMap, GivesUnknownIdsTheZeroRowUnderZero) {
  const auto map = MakeIdMap(Spec(5, UnknownIds::kZero));
  const Mapped mapped = MapAll(*map, {4, 5, kLeast});
  EXPECT_EQ(mapped.rows, (Ids{4, kZeroRow, kZeroRow}));
  EXPECT_EQ(mapped.unknown, 2U);
}

TEST(IdentityMap, FindsOneUnknownIdAmongMany) {
  const auto rejects = MakeIdMap(Spec(5, UnknownIds::kReject));
  const auto maps = MakeIdMap(Spec(5, UnknownIds::kZero));
  for (const size_t place : {0, 255, 256, 300, 599}) {
    for (const int64_t id : {int64_t{5}, int64_t{-1}, kLeast, kMost}) {
      Ids ids(600, 4);
      EXPECT_EQ(FirstRefused(*rejects, ids), 600U);
      ids[place] = id;
      EXPECT_EQ(FirstRefused(*rejects, ids), place);
      const Mapped mapped = MapAll(*maps, ids);
      EXPECT_EQ(mapped.unknown, 1U);
      ids[place] = kZeroRow;
      EXPECT_EQ(mapped.rows, ids);
    }
  }
}

// Expected rows: xxhash.xxh3_64_intdigest(struct.pack("<q", id), seed) % rows in Python.
TEST(HashMap, GivesXxh3OfTheIdsBytesModuloRows) {
  const auto map = MakeIdMap(HashSpec(1000));
  EXPECT_EQ(MapAll(*map, {0, 1, -1, kMost}).rows, (Ids{897, 78, 627, 142}));
  const auto seeded = MakeIdMap(HashSpec(1000, 7));
  EXPECT_EQ(MapAll(*seeded, {kLeast}).rows, (Ids{445}));
  const auto large = MakeIdMap(HashSpec(int64_t{1} << 40, 18446744073709551615U));
  EXPECT_EQ(MapAll(*large, {42}).rows, (Ids{558898338331}));
}

TEST(HashMap, KnowsEveryId) {
  const auto map = MakeIdMap(HashSpec(3));
  EXPECT_EQ(MapAll(*map, {kLeast, 0, kMost}).unknown, 0U);
  EXPECT_EQ(FirstRefused(*map, {kLeast, 0, kMost}), 3U);
}

TEST(VocabMap, FollowsThePolicy) {
  const auto vocabulary = MakeVocabulary({-5, 0, 7}, {2, 0, 1});
  const Ids ids = {7, 1, -5};
  const IdMapSpec zero = Spec(3, UnknownIds::kZero);
  EXPECT_EQ(MapAll(*MakeVocabMap(zero, vocabulary), ids).rows, (Ids{1, kZeroRow, 2}));
  EXPECT_EQ(MapAll(*MakeVocabMap(zero, vocabulary), ids).unknown, 1U);
  EXPECT_EQ(FirstRefused(*MakeVocabMap(zero, vocabulary), ids), 3U);
  const IdMapSpec oov = Spec(4, UnknownIds::kOov);
  EXPECT_EQ(MapAll(*MakeVocabMap(oov, vocabulary), ids).rows, (Ids{1, 3, 2}));
  EXPECT_EQ(FirstRefused(*MakeVocabMap(oov, vocabulary), ids), 3U);
  const IdMapSpec reject = Spec(3, UnknownIds::kReject);
  EXPECT_EQ(FirstRefused(*MakeVocabMap(reject, vocabulary), ids), 1U);
  EXPECT_EQ(FirstRefused(*MakeVocabMap(reject, vocabulary), {7, -5}), 2U);
}

TEST(VocabMap, RefusesTheFirstUnknownIdWhereverItStands) {
  const auto vocabulary = MakeVocabulary({3, 5}, {0, 1});
  const auto map = MakeVocabMap(Spec(2, UnknownIds::kReject), vocabulary);
  for (const size_t place : {0U, 31U, 255U, 256U, 511U, 600U}) {
    Ids ids(601, 5);
    ids[place] = 4;
    ids.back() = 4;
    EXPECT_EQ(FirstRefused(*map, ids), place);
  }
  EXPECT_EQ(FirstRefused(*map, Ids(512, 3)), 512U);
}

struct Keys {
  const char* name;
  Ids keys;
};

// Deterministic 64-bit numbers (splitmix64), sorted.
Ids Scattered(size_t count) {
  Ids keys;
  for (uint64_t state = 1; keys.size() < count; ++state) {
    uint64_t z = state * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    keys.push_back(static_cast<int64_t>(z ^ (z >> 31)));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

Ids Counted(int64_t first, size_t count) {
  Ids keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = first + static_cast<int64_t>(i);
  return keys;
}

// Half of them in one corner, one far away: the buckets are of no help.
Ids Lopsided() {
  Ids keys = Counted(-1000, 2000);
  keys.push_back(kMost);
  return keys;
}

class VocabularyOf : public ::testing::TestWithParam<Keys> {};

TEST_P(VocabularyOf, FindsEveryKeyAndNothingElse) {
  const Ids& keys = GetParam().keys;
  Ids rows(keys.size());  // Backwards, so that a row is not its key's place.
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(rows.size() - 1 - i);
  const auto vocabulary = MakeVocabulary(keys, rows);
  ASSERT_EQ(vocabulary->size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(vocabulary->Find(keys[i]), rows[i]) << keys[i];
    if (keys[i] != kMost && (i + 1 == keys.size() || keys[i + 1] != keys[i] + 1)) {
      ASSERT_EQ(vocabulary->Find(keys[i] + 1), kZeroRow) << keys[i] + 1;
    }
  }
  Ids found(keys.size());
  vocabulary->FindAll({keys.data(), keys.size()}, found.data());
  EXPECT_EQ(found, rows);
  if (keys.front() != kLeast) {
    EXPECT_EQ(vocabulary->Find(keys.front() - 1), kZeroRow);
    EXPECT_EQ(vocabulary->Find(kLeast), kZeroRow);
  }
  if (keys.back() != kMost) {
    EXPECT_EQ(vocabulary->Find(kMost), kZeroRow);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, VocabularyOf,
                         ::testing::Values(Keys{"one", {7}}, Keys{"least_alone", {kLeast}},
                                           Keys{"both_ends", {kLeast, kMost}},
                                           Keys{"all_signs", {kLeast, -1, 0, 1, kMost}},
                                           Keys{"counted", Counted(0, 1000)},
                                           Keys{"counted_from_below", Counted(-3, 1000)},
                                           Keys{"counted_to_the_end", Counted(kMost - 9, 10)},
                                           Keys{"scattered", Scattered(5000)},
                                           Keys{"lopsided", Lopsided()}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Vocabulary, FindsKnownAndUnknownKeysOfALongList) {
  const auto vocabulary = MakeVocabulary(Counted(0, 50), Counted(0, 50));
  Ids keys = Counted(-70, 200);
  Ids expected(200, kZeroRow);
  for (int64_t key = 0; key < 50; ++key) expected[key + 70] = key;
  Ids found(200);
  vocabulary->FindAll({keys.data(), keys.size()}, found.data());
  EXPECT_EQ(found, expected);
}

TEST(Vocabulary, RefusesKeysAndRowsThatDoNotFit) {
  const auto message = [](const Ids& keys, const Ids& rows) {
    return Parse(keys, rows).status().message();
  };
  EXPECT_EQ(message({1, 3, 2}, {0, 1, 2}),
            "ids/a.safetensors: keys: expected strictly increasing ids, got 3 and then 2 at "
            "position 2");
  EXPECT_EQ(message({1, 1}, {0, 1}),
            "ids/a.safetensors: keys: expected strictly increasing ids, got 1 and then 1 at "
            "position 1");
  EXPECT_EQ(message({1, 2}, {0, 2}),
            "ids/a.safetensors: rows: expected rows of 0 .. 1, got 2 at position 1");
  EXPECT_EQ(message({1, 2}, {-1, 0}),
            "ids/a.safetensors: rows: expected rows of 0 .. 1, got -1 at position 0");
  EXPECT_EQ(message({1, 2}, {1, 1}),
            "ids/a.safetensors: rows: expected every row once, got 1 again at position 1");
  EXPECT_EQ(message({}, {}), "ids/a.safetensors: keys: expected 1 .. 4294967295 ids, got 0");
}

TEST(Vocabulary, IsReadByManyThreadsAtOnce) {
  const Ids keys = Counted(0, 1000);
  const auto map = MakeVocabMap(Spec(1000), MakeVocabulary(keys, keys));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { EXPECT_EQ(MapAll(*map, keys).rows, keys); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace embershard
