#include "package/tables.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "package/golden.h"

namespace embershard {
namespace {

using testing::Draft;
using testing::GoldenFolder;
using testing::GoldenManifest;
using Row = std::vector<uint8_t>;

class TablesOf : public ::testing::TestWithParam<TableResidency> {
 protected:
  std::unique_ptr<TableStore> Open(const std::filesystem::path& folder, const Manifest& manifest) {
    const auto opened = PackageFolder::Open(folder);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    auto tables = TableStore::Open(*opened, manifest, GetParam());
    EXPECT_TRUE(tables.ok()) << tables.status().message();
    return std::move(*tables);
  }
};

INSTANTIATE_TEST_SUITE_P(Residency, TablesOf,
                         ::testing::Values(TableResidency::kMmap, TableResidency::kResident),
                         [](const auto& info) {
                           return info.param == TableResidency::kMmap ? "mmap" : "resident";
                         });

PackageFolder FolderOf(const Draft& draft) {
  auto opened = PackageFolder::Open(draft.folder());
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return std::move(*opened);
}

// Every golden row has 8 bytes.
Row RowAt(const TableStore& tables, size_t table, size_t row) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(tables.rows(table)) + 8 * row;
  return Row(bytes, bytes + 8);
}

TEST_P(TablesOf, HoldTheGoldenRows) {
  const auto tables = Open(GoldenFolder(), GoldenManifest());
  // fp16 1/128 and -1, then the codes 16 r + c.
  EXPECT_EQ(RowAt(*tables, 0, 0), (Row{0x00, 0x20, 0x00, 0xBC, 0, 1, 2, 3}));
  EXPECT_EQ(RowAt(*tables, 0, 4), (Row{0x00, 0x20, 0x00, 0xBC, 64, 65, 66, 67}));
  // fp16 0.5 and -1, then the codes (r + c) % 16 in pairs, low nibble first.
  for (size_t r = 0; r < 600; ++r) {
    Row expected = {0x00, 0x38, 0x00, 0xBC};
    for (size_t c = 0; c < 8; c += 2) {
      expected.push_back(static_cast<uint8_t>((r + c) % 16 + 16 * ((r + c + 1) % 16)));
    }
    ASSERT_EQ(RowAt(*tables, 1, r), expected) << "row " << r;
  }
  // fp16 6, 6.25, 6.5, 6.75.
  EXPECT_EQ(RowAt(*tables, 2, 6), (Row{0x00, 0x46, 0x40, 0x46, 0x80, 0x46, 0xC0, 0x46}));
}

TEST_P(TablesOf, TakeWholePages) {
  const auto tables = Open(GoldenFolder(), GoldenManifest());
  // 40, 4800 and 56 bytes.
  EXPECT_EQ(tables->size_bytes(0), PageBytes());
  EXPECT_EQ(tables->size_bytes(1), (4800 + PageBytes() - 1) / PageBytes() * PageBytes());
  EXPECT_EQ(tables->size_bytes(2), PageBytes());
}

TEST_P(TablesOf, MayBeReadAPageBehindTheLastRow) {
  const auto tables = Open(GoldenFolder(), GoldenManifest());
  for (size_t table = 0; table < 3; ++table) {
    const std::byte* end = tables->rows(table) + tables->size_bytes(table);
    for (size_t i = 0; i < PageBytes(); ++i) ASSERT_EQ(end[i], std::byte{0});
  }
}

TEST_P(TablesOf, StayWhenTheirFilesAreRemoved) {
  const Draft draft;
  const auto tables = Open(draft.folder(), GoldenManifest());
  std::filesystem::remove_all(draft.folder());
  EXPECT_EQ(RowAt(*tables, 0, 4), (Row{0x00, 0x20, 0x00, 0xBC, 64, 65, 66, 67}));
}

TEST_P(TablesOf, AreReadByManyThreadsAtOnce) {
  const auto tables = Open(GoldenFolder(), GoldenManifest());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { EXPECT_EQ(RowAt(*tables, 0, i)[4], 16 * i); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(TablesOf, AreRefusedForOneWrongByte) {
  const Draft draft;
  const std::string file = "tables/items/00001.safetensors";
  std::string bytes = testing::ReadFile(draft.folder() / file);
  bytes.back() ^= 1;
  testing::WriteFile(draft.folder() / file, bytes);
  const auto tables = TableStore::Open(FolderOf(draft), GoldenManifest(), GetParam());
  EXPECT_EQ(tables.status().code(), StatusCode::kBadPackage);
  EXPECT_TRUE(tables.status().message().starts_with(file + ": sha256: expected "))
      << tables.status().message();
}

TEST_P(TablesOf, AreRefusedWhenAFileIsCutShort) {
  const Draft draft;
  const std::string file = "tables/items/00000.safetensors";
  std::filesystem::resize_file(draft.folder() / file, 5000);
  const auto tables = TableStore::Open(FolderOf(draft), GoldenManifest(), GetParam());
  EXPECT_EQ(tables.status().message(), file + ": bytes: expected 8192, got 5000");
}

TEST_P(TablesOf, AreRefusedWhereAFileIsALink) {
  const Draft draft;
  const std::filesystem::path file = "tables/items/00000.safetensors";
  std::filesystem::rename(draft.folder() / file, draft.folder() / "moved");
  std::filesystem::create_symlink(draft.folder() / "moved", draft.folder() / file);
  const auto tables = TableStore::Open(FolderOf(draft), GoldenManifest(), GetParam());
  EXPECT_EQ(tables.status().message(),
            "tables/items/00000.safetensors: file: expected a regular file, got a symbolic link");
}

TEST_P(TablesOf, AreRefusedWhereAFolderIsALink) {
  const Draft draft;
  std::filesystem::rename(draft.folder() / "tables", draft.folder() / "moved");
  std::filesystem::create_symlink(draft.folder() / "moved", draft.folder() / "tables");
  const auto tables = TableStore::Open(FolderOf(draft), GoldenManifest(), GetParam());
  EXPECT_EQ(tables.status().code(), StatusCode::kBadPackage);
  EXPECT_TRUE(tables.status().message().starts_with(
      "tables/users/00000.safetensors: file: expected a file"))
      << tables.status().message();
}

// Opens a second package that has tables in common with the first.
class SharedTables : public TablesOf {
 protected:
  std::unique_ptr<TableStore> OpenShared(const std::filesystem::path& folder,
                                         const Manifest& manifest) {
    const auto opened = PackageFolder::Open(folder);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    auto tables = TableStore::Open(*opened, manifest, GetParam(), &loaded_);
    EXPECT_TRUE(tables.ok()) << tables.status().message();
    return tables.ok() ? std::move(*tables) : nullptr;
  }

  LoadedChunks loaded_;
};

INSTANTIATE_TEST_SUITE_P(Residency, SharedTables,
                         ::testing::Values(TableResidency::kMmap, TableResidency::kResident),
                         [](const auto& info) {
                           return info.param == TableResidency::kMmap ? "mmap" : "resident";
                         });

TEST_P(SharedTables, ATableThatIsLoadedIsNotReadAgain) {
  const auto first = OpenShared(GoldenFolder(), GoldenManifest());
  const Draft draft;  // Reading its files would fail.
  for (const auto& [file, spec] : GoldenManifest().files) {
    if (!file.starts_with("tables/")) continue;
    testing::WriteFile(draft.folder() / file, std::string(spec.bytes, 'x'));
  }
  const auto second = OpenShared(draft.folder(), GoldenManifest());
  ASSERT_NE(second, nullptr);
  for (size_t table = 0; table < 3; ++table) EXPECT_EQ(second->rows(table), first->rows(table));
}

TEST_P(SharedTables, OfATableThatDiffersInOneChunkTheOthersAreNotReadAgain) {
  auto first = OpenShared(GoldenFolder(), GoldenManifest());
  const Draft draft;
  const std::string same = "tables/items/00000.safetensors";
  const std::string other = "tables/items/00001.safetensors";
  std::string bytes = testing::ReadFile(draft.folder() / other);
  bytes.back() ^= 1;
  testing::WriteFile(draft.folder() / other, bytes);
  Manifest manifest = GoldenManifest();
  manifest.files.at(other).sha256 = Sha256Hex(bytes.data(), bytes.size());
  testing::WriteFile(draft.folder() / same, std::string(manifest.files.at(same).bytes, 'x'));
  const auto second = OpenShared(draft.folder(), manifest);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second->rows(1), first->rows(1));
  EXPECT_EQ(RowAt(*second, 1, 0), RowAt(*first, 1, 0));
  EXPECT_NE(RowAt(*second, 1, 599), RowAt(*first, 1, 599));
  const Row row = RowAt(*first, 1, 0);
  first.reset();
  EXPECT_EQ(RowAt(*second, 1, 0), row);
}

TEST_P(SharedTables, WhatIsLoadedNoMoreIsReadAgain) {
  OpenShared(GoldenFolder(), GoldenManifest()).reset();
  const Draft draft;
  const std::string file = "tables/users/00000.safetensors";
  testing::WriteFile(draft.folder() / file,
                     std::string(GoldenManifest().files.at(file).bytes, 'x'));
  const auto opened = PackageFolder::Open(draft.folder());
  const auto tables = TableStore::Open(*opened, GoldenManifest(), GetParam(), &loaded_);
  EXPECT_EQ(tables.status().code(), StatusCode::kBadPackage);
}

}  // namespace
}  // namespace embershard
