#include "package/package.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"
#include "package/golden.h"

namespace embershard {
namespace {

using Json = nlohmann::json;
using testing::Draft;

ptrdiff_t OpenDescriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return std::distance(begin(folder), end(folder));
}

TEST(Package, OpensTheGoldenPackage) {
  const auto package = Package::Open(testing::GoldenFolder(), {});
  ASSERT_TRUE(package.ok()) << package.status().message();
  EXPECT_EQ((*package)->manifest().model, "tiny");
  EXPECT_EQ((*package)->plan().name, "default");
  EXPECT_EQ((*package)->samples().size(), 2U);
  EXPECT_TRUE(VerifyPackage(testing::GoldenFolder()).ok());
}

TEST(Package, MapsTheIdsOfEachInput) {
  const auto package = Package::Open(testing::GoldenFolder(), {});
  ASSERT_TRUE(package.ok()) << package.status().message();
  // The first sample's user is "cyd", row 2; the second's is unknown: the oov row.
  for (const auto& [sample, row] : {std::pair(0, 2), std::pair(1, 4)}) {
    const int64_t id = (*package)->samples()[sample].values[0];
    int64_t mapped = -99;
    (*package)->id_map(0).Map({&id, 1}, &mapped);
    EXPECT_EQ(mapped, row);
  }
  const int64_t items[] = {599, 600};
  EXPECT_EQ((*package)->id_map(2).FirstRefused({items, 2}), 1U);
}

TEST(Package, OpensThePlanThatIsAskedFor) {
  const auto package = Package::Open(testing::GoldenFolder(),
                                     {.residency = TableResidency::kMmap, .plan = "halves"});
  ASSERT_TRUE(package.ok()) << package.status().message();
  EXPECT_EQ((*package)->plan().devices.size(), 2U);
  const auto none = Package::Open(testing::GoldenFolder(),
                                  {.residency = TableResidency::kMmap, .plan = "quarters"});
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(none.status().message(), "plan: expected one of default, halves, got 'quarters'");
}

TEST(Package, ChecksEveryPlanWhicheverIsAskedFor) {
  Draft draft;
  draft.Replace("plans/halves.json", "{}");
  EXPECT_TRUE(VerifyPackage(draft.folder()).message().starts_with("plans/halves.json: "))
      << VerifyPackage(draft.folder()).message();
}

TEST(Package, ChecksTheManifestsDigestBeforeTheManifest) {
  const Draft draft;
  testing::WriteFile(draft.folder() / "manifest.json", "no json");
  const std::string message = VerifyPackage(draft.folder()).message();
  EXPECT_TRUE(message.starts_with("manifest.json: sha256: expected ")) << message;
}

TEST(Package, RefusesADigestFileOfAnotherForm) {
  const Draft draft;
  const std::string line = testing::ReadFile(draft.folder() / "manifest.sha256");
  for (const std::string& text : {std::string(), line.substr(0, 64), line + line,
                                  "x" + line.substr(1), line.substr(0, line.size() - 1)}) {
    testing::WriteFile(draft.folder() / "manifest.sha256", text);
    EXPECT_EQ(VerifyPackage(draft.folder()).message(),
              "manifest.sha256: sha256: expected one line: 64 hex digits, two spaces, "
              "manifest.json, got something else");
  }
}

TEST(Package, RefusesAFolderThatIsNone) {
  const Draft draft;
  const Status nothing = VerifyPackage(draft.folder() / "none");
  EXPECT_EQ(nothing.code(), StatusCode::kBadPackage);
  EXPECT_EQ(nothing.message(), (draft.folder() / "none").string() + ": missing file");
  EXPECT_EQ(VerifyPackage(draft.folder() / "manifest.json").code(), StatusCode::kBadPackage);
}

TEST(Package, TakesTheLinkThatLeadsToIt) {
  const Draft draft;
  const std::filesystem::path link = draft.folder().parent_path() / "stable";
  std::filesystem::create_directory_symlink(draft.folder(), link);
  EXPECT_TRUE(VerifyPackage(link).ok());
}

TEST(Package, RefusesTheFileThatIsNotListed) {
  const Draft draft;
  testing::WriteFile(draft.folder() / "tables" / "extra\n", "x");
  EXPECT_EQ(VerifyPackage(draft.folder()).message(), "tables/extra?: unexpected file");
}

TEST(Package, TakesEmptyFoldersThatLieDeeperThanAPathIsLong) {
  const Draft draft;
  File here(open(draft.folder().c_str(), O_RDONLY | O_DIRECTORY));
  for (int depth = 0; depth < 1500; ++depth) {
    ASSERT_EQ(mkdirat(here.descriptor(), "folder", 0700), 0);
    here = File(openat(here.descriptor(), "folder", O_RDONLY | O_DIRECTORY));
    ASSERT_TRUE(here.is_open());
  }
  EXPECT_EQ(VerifyPackage(draft.folder()).message(), "");
}

TEST(Package, RefusesAVocabularyOfAnotherSizeThanItsInputs) {
  Draft draft;
  draft.EditManifest([](Json& document) {
    Json& ids = document["inputs"][2]["ids"];
    ids["unknown"] = "zero";  // Now all five rows are known ids', and the file has four.
    ids["oov_row"] = nullptr;
  });
  EXPECT_EQ(VerifyPackage(draft.folder()).message(),
            "ids/user.safetensors: keys: expected 5 ids, got 4");
}

// Whatever of the package is read, one flipped bit shows.
TEST(Package, RefusesEveryFileWithOneFlippedBit) {
  const Manifest manifest = testing::GoldenManifest();
  for (const auto& [file, spec] : manifest.files) {
    const Draft draft;
    std::string bytes = testing::ReadFile(draft.folder() / file);
    bytes[bytes.size() / 2] ^= 4;
    testing::WriteFile(draft.folder() / file, bytes);
    const Status status = VerifyPackage(draft.folder());
    EXPECT_EQ(status.code(), StatusCode::kBadPackage) << file;
    EXPECT_TRUE(status.message().starts_with(file + ": ")) << status.message();
  }
}

TEST(Package, RefusesEveryFileCutAnywhere) {
  const Manifest manifest = testing::GoldenManifest();
  for (const auto& [file, spec] : manifest.files) {
    for (const uint64_t size : {uint64_t{0}, uint64_t{5}, spec.bytes / 2, spec.bytes - 2}) {
      Draft draft;
      draft.Replace(file, testing::ReadFile(draft.folder() / file).substr(0, size));
      // The program is not read here: its new digest is right, and so is the package.
      EXPECT_EQ(VerifyPackage(draft.folder()).ok(), file == "programs/dense.pt")
          << file << " of " << size << " bytes";
    }
  }
}

TEST(Package, LeavesNoFileOpen) {
  const ptrdiff_t before = OpenDescriptors();
  {
    const auto package = Package::Open(testing::GoldenFolder(), {});
    ASSERT_TRUE(package.ok());
    EXPECT_EQ(OpenDescriptors(), before);
  }
  Draft draft;
  draft.Replace("samples.safetensors", "x");
  EXPECT_FALSE(VerifyPackage(draft.folder()).ok());
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace embershard
