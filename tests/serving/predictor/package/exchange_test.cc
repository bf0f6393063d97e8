// Opening a package while another folder takes its place, as it does where a plan is added.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "package/golden.h"
#include "package/package.h"

namespace {

// Called with the name before a file or folder of a package is opened. Not called recursively.
std::function<void(const std::string&)> before_openat;

}  // namespace

// In place of the C library's: every step of an opening comes through here.
extern "C" int openat(int folder, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if (before_openat) {
    const auto running = std::exchange(before_openat, nullptr);
    running(path);
    before_openat = running;
  }
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

namespace embershard {
namespace {

using testing::Draft;

using Step = std::function<void(const std::string& file)>;

// A package whose folder is exchanged for one with a further plan.
class Exchanged {
 public:
  const std::filesystem::path& folder() const { return package_.folder(); }

  // Opens the package, and calls `before` before each step.
  Result<std::unique_ptr<Package>> Open(const Step& before, const std::string& plan = "") {
    before_openat = before;
    auto opened = Package::Open(folder(), {.residency = TableResidency::kMmap, .plan = plan});
    before_openat = nullptr;
    return opened;
  }

  // Exchanges the package for a copy with one plan more, and removes the old one.
  void AddPlan(const std::string& name) {
    Draft other;
    std::filesystem::remove_all(other.folder());
    std::filesystem::copy(folder(), other.folder(), std::filesystem::copy_options::recursive);
    const std::string plan = testing::ReadFile(folder() / "plans" / "default.json");
    nlohmann::json document = nlohmann::json::parse(plan);
    document["name"] = name;
    other.Replace("plans/" + name + ".json", document.dump());
    other.EditManifest([&](nlohmann::json& manifest) { manifest["plans"].push_back(name); });
    ASSERT_EQ(
        renameat2(AT_FDCWD, folder().c_str(), AT_FDCWD, other.folder().c_str(), RENAME_EXCHANGE),
        0);
  }

 private:
  Draft package_;
};

bool IsFile(const std::string& name) { return name.find('.', 1) != std::string::npos; }

TEST(PackageExchange, APlanAddedBeforeAnyFileIsOpenedDoesNoHarm) {
  int steps = 0;
  ASSERT_TRUE(Exchanged().Open([&](const std::string& file) { steps += IsFile(file); }).ok());
  ASSERT_GE(steps, 11);  // The package has so many.
  int opened_anew = 0;
  for (int at = 0; at < steps; ++at) {
    Exchanged exchanged;
    int step = 0;
    const auto opened = exchanged.Open([&](const std::string& file) {
      if (IsFile(file) && step++ == at) exchanged.AddPlan("more");
    });
    ASSERT_TRUE(opened.ok()) << "step " << at << ": " << opened.status().message();
    if ((*opened)->manifest().plans.size() == 3) ++opened_anew;
  }
  EXPECT_GT(opened_anew, steps / 2);
}

TEST(PackageExchange, ThePlanThatIsAddedMeanwhileIsThere) {
  Exchanged exchanged;
  bool added = false;
  const auto opened = exchanged.Open(
      [&](const std::string&) {
        if (!std::exchange(added, true)) exchanged.AddPlan("more");
      },
      "more");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ((*opened)->plan().name, "more");
}

TEST(PackageExchange, GivesUpWherePlansNeverEnd) {
  Exchanged exchanged;
  int added = 0;
  const auto opened = exchanged.Open([&](const std::string& file) {
    if (file == "manifest.sha256") exchanged.AddPlan("p" + std::to_string(added++));
  });
  EXPECT_EQ(opened.status().code(), StatusCode::kBadPackage);
  EXPECT_EQ(opened.status().message(), "manifest.sha256: missing file");
  EXPECT_EQ(added, 3);
}

TEST(PackageExchange, DamageIsSaidAtOnce) {
  Exchanged damaged;
  testing::WriteFile(damaged.folder() / "manifest.json", "no json");
  int tries = 0;
  const auto opened =
      damaged.Open([&](const std::string& file) { tries += file == "manifest.sha256"; });
  EXPECT_EQ(opened.status().code(), StatusCode::kBadPackage);
  EXPECT_EQ(tries, 1);
}

TEST(PackageExchange, AFolderThatGoesAwayIsSaidAtOnce) {
  Exchanged gone;
  int tries = 0;
  const auto opened = gone.Open([&](const std::string& file) {
    if (file != "manifest.sha256") return;
    ++tries;
    std::filesystem::remove_all(gone.folder());
  });
  EXPECT_EQ(opened.status().message(), "manifest.sha256: missing file");
  EXPECT_EQ(tries, 1);
}

}  // namespace
}  // namespace embershard
