#include "package/golden.h"

#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/sha256.h"
#include "testing/paths.h"

namespace embershard::testing {
namespace {

using Json = nlohmann::json;

// The golden manifest's numbers are written alike by this dump and by Python's.
std::string Edited(const std::string& text, const std::function<void(Json&)>& edit) {
  Json document = Json::parse(text);
  edit(document);
  const Json schema = {{"inputs", document["inputs"]}, {"outputs", document["outputs"]}};
  const std::string canonical = schema.dump();
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(canonical.data(), canonical.size())));
  document["schema"] = digits;
  return document.dump(1);
}

}  // namespace

std::filesystem::path GoldenFolder() {
  return testing::TestsFolder() / "golden" / "format_0" / "tiny" / "1";
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

void WriteFile(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Manifest GoldenManifest() {
  Result<Manifest> manifest = ParseManifest(ReadFile(GoldenFolder() / "manifest.json"));
  EXPECT_TRUE(manifest.ok()) << manifest.status().message();
  return *manifest;
}

std::string EditedManifest(const std::function<void(Json&)>& edit) {
  return Edited(ReadFile(GoldenFolder() / "manifest.json"), edit);
}

Draft::Draft() : folder_(scratch_.path() / "1") {
  std::filesystem::copy(GoldenFolder(), folder_, std::filesystem::copy_options::recursive);
}

void Draft::EditManifest(const std::function<void(Json&)>& edit) {
  const std::string text = Edited(ReadFile(folder_ / "manifest.json"), edit);
  WriteFile(folder_ / "manifest.json", text);
  WriteFile(folder_ / "manifest.sha256", Sha256Hex(text.data(), text.size()) + "  manifest.json\n");
}

void Draft::Replace(const std::string& file, const std::string& bytes) {
  WriteFile(folder_ / file, bytes);
  EditManifest([&](Json& document) {
    document["files"][file] = {{"bytes", bytes.size()},
                               {"sha256", Sha256Hex(bytes.data(), bytes.size())}};
  });
}

}  // namespace embershard::testing
