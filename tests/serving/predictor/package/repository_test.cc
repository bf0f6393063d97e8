#include "package/repository.h"

#include <gtest/gtest.h>
#include <sys/fsuid.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "package/package.h"
#include "testing/scratch_folder.h"

namespace embershard {
namespace {

namespace fs = std::filesystem;

// This thread opens files as a user without any right here, root's included.
class Unprivileged {
 public:
  Unprivileged() { setfsuid(65534); }
  ~Unprivileged() { setfsuid(0); }
};

class RepositoryTest : public ::testing::Test {
 protected:
  RepositoryTest() { fs::permissions(folder_.path(), fs::perms(0755)); }

  fs::path Publish(const std::string& version) {
    const fs::path folder = folder_.path() / version;
    fs::create_directories(folder);
    std::ofstream(folder / "manifest.json") << "{}";
    return folder;
  }

  std::string Refusal(const std::string& model) {
    const auto models = ListRepository(folder_.path());
    const auto entry = models->find(model);
    return entry != models->end() ? entry->second.status().message() : "not listed";
  }

  testing::ScratchFolder folder_;
};

TEST_F(RepositoryTest, ListsVersionsAscendingAndNothingElse) {
  for (const char* version : {"ranker/10", "ranker/9", "ranker/latest", "ranker/.11.partial"}) {
    Publish(version);
  }
  fs::create_directories(folder_.path() / "ranker" / "12");  // Without a manifest.
  std::ofstream(folder_.path() / "ranker" / "13") << "a file";
  fs::create_symlink("nowhere", folder_.path() / "ranker" / "14");
  std::ofstream(folder_.path() / "README") << "a file";
  fs::create_symlink("nowhere", folder_.path() / "finder");
  const auto models = ListRepository(folder_.path());
  ASSERT_TRUE(models.ok()) << models.status().message();
  ASSERT_EQ(models->size(), 1U);
  EXPECT_EQ(*models->at("ranker"), (std::vector<int64_t>{9, 10}));
}

TEST_F(RepositoryTest, VersionWithoutPermissionIsListedAndItsLoadSaysSo) {
  Publish("ranker/1");
  const fs::path closed = Publish("ranker/2");
  fs::permissions(closed, fs::perms::none);
  const Unprivileged unprivileged;
  EXPECT_EQ(*ListRepository(folder_.path())->at("ranker"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(VerifyPackage(closed).message(),
            closed.string() + ": cannot be read: Permission denied");
}

TEST_F(RepositoryTest, ModelFolderWithoutPermissionIsRefusedAndLeavesTheOthers) {
  Publish("ranker/1");
  const fs::path closed = Publish("finder/1").parent_path();
  fs::permissions(closed, fs::perms::none);
  const Unprivileged unprivileged;
  EXPECT_EQ(Refusal("finder"),
            "model 'finder': " + closed.string() + ": cannot be read: Permission denied");
  EXPECT_EQ(Refusal("ranker"), "");
}

// Root meets this error, too.
TEST_F(RepositoryTest, LoopOfLinksIsAnError) {
  Publish("ranker/1");
  fs::create_symlink("2", folder_.path() / "ranker" / "2");
  fs::create_symlink("finder", folder_.path() / "finder");
  EXPECT_EQ(*ListRepository(folder_.path())->at("ranker"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Refusal("finder"), "model 'finder': " + (folder_.path() / "finder").string() +
                                   ": cannot be read: Too many levels of symbolic links");
}

TEST_F(RepositoryTest, StatesTheDigestOfAManifestAsItsFileDoes) {
  const fs::path folder = Publish("ranker/1");
  EXPECT_EQ(ReadManifestDigest(folder).status().code(), StatusCode::kNotFound);
  const std::string digest(64, 'a');
  std::ofstream(folder / "manifest.sha256") << digest << "  manifest.json\n";
  EXPECT_EQ(*ReadManifestDigest(folder), digest);
  fs::remove_all(folder);
  EXPECT_EQ(ReadManifestDigest(folder).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace embershard
