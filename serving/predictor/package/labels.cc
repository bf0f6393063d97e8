#include "package/labels.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "package/json.h"
#include "package/refusal.h"

namespace embershard {
namespace {

constexpr std::array<std::string_view, 3> kLabels = {"canary", "shadow", "stable"};

// Three labels with numbers; the rest would be white space.
constexpr uint64_t kBytesMax = 4096;

// Of what is no regular file.
const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  return S_ISFIFO(mode) ? "a FIFO" : "a device";
}

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
  const File file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open() && errno == ENOENT) return Labels();
  if (!file.is_open()) {
    return Refusal(kLabelsFile, "file", "a regular file",
                   errno == ELOOP ? "a symbolic link" : std::strerror(errno));
  }
  struct stat status = {};
  if (fstat(file.descriptor(), &status) != 0) {
    return Refusal(kLabelsFile, "file", "a regular file", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return Refusal(kLabelsFile, "file", "a regular file", KindOf(status.st_mode));
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  if (size > kBytesMax) {
    return Refusal(kLabelsFile, "bytes", "at most " + std::to_string(kBytesMax),
                   std::to_string(size));
  }
  std::string text(size, '\0');
  text.resize(file.ReadAt(0, text.data(), size));
  return ParseLabels(text);
}

}  // namespace embershard
