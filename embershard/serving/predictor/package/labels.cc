#include "package/labels.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "package/folder.h"
#include "package/json.h"

namespace embershard {
namespace {

constexpr std::array<std::string_view, 3> kLabels = {"canary", "shadow", "stable"};

// More than three labels with their numbers need; a larger file is mostly white space.
constexpr uint64_t kBytesMax = 4096;

}  // namespace

bool IsLabel(std::string_view text) { return std::ranges::find(kLabels, text) != kLabels.end(); }

Result<Labels> ParseLabels(std::string_view json) {
  nlohmann::json document;
  RETURN_IF_ERROR(ParseJson(json, kLabelsFile, &document));
  FirstRefusal refusal(kLabelsFile);
  const JsonValue root(document, &refusal);
  Labels labels;
  for (const auto& [label, version] : root.Members()) {
    if (!IsLabel(label)) version.Refuse("canary, shadow or stable", label);
    labels.emplace(label, version.Integer(1, INT64_MAX));
  }
  if (!refusal.ok()) return refusal.status();
  return labels;
}

Result<Labels> ReadLabels(const std::filesystem::path& model_folder) {
  const std::filesystem::path path = model_folder / kLabelsFile;
  ASSIGN_OR_RETURN(const File file, OpenRegular(AT_FDCWD, path, kLabelsFile));
  if (!file.is_open()) return Labels();
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(file, kLabelsFile, kBytesMax));
  return ParseLabels(text);
}

}  // namespace embershard
