// The golden package of format version 0, for tests that read it or a damaged copy of it.
//
//    table   rows   stored as        value of row r, column c
//    users      5   int8, dim 4      code 16 r + c
//    items    600   int4, dim 8      code (r + c) % 16, low nibble first; two chunks
//    tags       7   fp16, dim 4      r + c / 4

#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "package/manifest.h"
#include "testing/scratch_folder.h"

namespace embershard::testing {

std::filesystem::path GoldenFolder();
std::string ReadFile(const std::filesystem::path& path);
void WriteFile(const std::filesystem::path& path, const std::string& bytes);

// The golden manifest, which must be one.
Manifest GoldenManifest();

// manifest.json after `edit`, its fingerprint right again.
std::string EditedManifest(const std::function<void(nlohmann::json&)>& edit);

// A copy of the golden package that may be changed.
class Draft {
 public:
  Draft();
  const std::filesystem::path& folder() const { return folder_; }

  // Changes manifest.json, and its fingerprint and digest with it.
  void EditManifest(const std::function<void(nlohmann::json&)>& edit);

  // Other bytes for a file; size and digest in the manifest follow.
  void Replace(const std::string& file, const std::string& bytes);

 private:
  ScratchFolder scratch_;
  std::filesystem::path folder_;
};

}  // namespace embershard::testing
