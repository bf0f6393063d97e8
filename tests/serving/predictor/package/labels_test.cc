#include "package/labels.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "testing/scratch_folder.h"

namespace embershard {
namespace {

TEST(Labels, AreVersionsByLabel) {
  const auto labels = ParseLabels(R"({"stable": 3, "canary": 4})");
  ASSERT_TRUE(labels.ok()) << labels.status().message();
  EXPECT_EQ(*labels, (Labels{{"canary", 4}, {"stable", 3}}));
  EXPECT_TRUE(ParseLabels("{}")->empty());
}

// The same texts are refused by embershard/package/labels.py: tests/package/test_labels.py.
TEST(Labels, OtherLabelsAndNumbersAreRefused) {
  for (const char* text :
       {R"({"beta": 1})", R"({"stable": 0})", R"({"stable": "1"})", R"({"stable": 1.5})",
        R"({"stable": true})", R"([1])", R"({"stable": 1, "stable": 2})", R"({"stable": 1)", "",
        R"({"stable": 9223372036854775808})"}) {
    const auto labels = ParseLabels(text);
    EXPECT_EQ(labels.status().code(), StatusCode::kBadPackage) << text;
    EXPECT_TRUE(labels.status().message().starts_with("labels.json: "))
        << labels.status().message();
  }
}

TEST(Labels, AModelWithoutTheFileHasNone) {
  const testing::ScratchFolder folder;
  EXPECT_TRUE(ReadLabels(folder.path())->empty());
  std::ofstream(folder.path() / "labels.json") << R"({"shadow": 7})";
  EXPECT_EQ(*ReadLabels(folder.path()), (Labels{{"shadow", 7}}));
}

// Python's reader says the same: tests/package/test_labels.py.
TEST(Labels, AFileOfAnotherKindIsRefusedByItsKind) {
  const testing::ScratchFolder folder;
  const std::filesystem::path path = folder.path() / "labels.json";
  const auto refused = [&folder] { return ReadLabels(folder.path()).status().message(); };
  std::filesystem::create_directory(path);
  EXPECT_EQ(refused(), "labels.json: file: expected a regular file, got a folder");
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(refused(), "labels.json: file: expected a regular file, got a FIFO");
  std::filesystem::remove(path);
  std::filesystem::create_symlink("elsewhere", path);
  EXPECT_EQ(refused(), "labels.json: file: expected a regular file, got a symbolic link");
}

}  // namespace
}  // namespace embershard
