#include <algorithm>
#include <set>
#include <utility>

#include "package/id_maps.h"
#include "package/json_parse.h"
#include "package/manifest_fields.h"
#include "package/plan.h"
#include "package/safetensors.h"

namespace embershard {
namespace {

// `key`: the member of each element which must differ; empty: the element itself.
void CheckDistinct(const JsonValue& list, std::string_view key) {
  std::set<std::string> seen;
  for (const JsonValue& element : list.Elements()) {
    const JsonValue name = key.empty() ? element : element[key];
    if (!seen.insert(name.Text()).second) {
      name.Refuse("distinct names", "'" + name.Text() + "' twice");
    }
  }
}

struct NamedFile {
  JsonValue field;
  std::string file;
  bool shared = false;  // Inputs may share a vocabulary.
};

std::vector<NamedFile> NamedFiles(const Manifest& manifest, const JsonValue& root) {
  std::vector<NamedFile> named;
  for (const JsonValue& table : root["tables"].Elements()) {
    for (const JsonValue& chunk : table["chunks"].Elements())
      named.push_back({chunk, chunk.Text()});
  }
  for (const JsonValue& input : root["inputs"].Elements()) {
    const JsonValue file = input["ids"]["file"];
    if (!file.is_null()) named.push_back({file, file.Text(), true});
  }
  for (const JsonValue& program : root["programs"].Elements()) {
    named.push_back({program["file"], program["file"].Text()});
  }
  for (const JsonValue& plan : root["plans"].Elements()) {
    named.push_back({plan, PlanFile(plan.Text())});
  }
  named.push_back({root["samples"], manifest.samples});
  return named;
}

void CheckFiles(const Manifest& manifest, const JsonValue& root) {
  const JsonValue files = root["files"];
  for (const auto& [file, spec] : manifest.files) {
    if (file == kManifestFile || file == kManifestDigestFile) files[file].RefuseUnexpected();
    for (size_t end = file.find('/'); end != std::string::npos; end = file.find('/', end + 1)) {
      const std::string folder = file.substr(0, end);
      if (manifest.files.contains(folder)) files[file].Refuse(folder + " to be a folder", "a file");
    }
  }
  std::set<std::string> seen;
  for (const NamedFile& named : NamedFiles(manifest, root)) {
    if (!manifest.files.contains(named.file)) {
      named.field.Refuse("a file that files lists", named.file);
    }
    if (!seen.insert(named.file).second && !named.shared) {
      named.field.Refuse("a file of its own", named.file + ", named before");
    }
  }
}

// Files that are read whole take memory before anything else of them is known.
void CheckSizes(const Manifest& manifest, const JsonValue& root) {
  constexpr uint64_t kIdBytes = 16;  // A key and a row.
  constexpr uint64_t kSamplesBytesMax = uint64_t{1} << 30;
  std::vector<std::pair<std::string, uint64_t>> most = {{manifest.samples, kSamplesBytesMax}};
  for (const std::string& plan : manifest.plans) most.emplace_back(PlanFile(plan), kJsonBytesMax);
  for (const SparseInput& input : manifest.schema.sparse) {
    if (input.ids.kind != IdMapKind::kVocab) continue;
    const auto ids = static_cast<uint64_t>(KnownIds(input.ids));
    most.emplace_back(input.ids.file, ids * kIdBytes + kSafetensorsHeadBytesMax);
  }
  for (const auto& [file, bytes_max] : most) {
    const auto listed = manifest.files.find(file);
    if (listed == manifest.files.end() || listed->second.bytes <= bytes_max) continue;
    root["files"][file]["bytes"].Refuse("at most " + std::to_string(bytes_max));
  }
}

}  // namespace

void CheckManifest(const Manifest& manifest, const JsonValue& root) {
  CheckDistinct(root["inputs"], "name");
  CheckDistinct(root["outputs"], "name");
  CheckDistinct(root["tables"], "name");
  CheckDistinct(root["plans"], "");
  CheckDistinct(root["programs"], "target");
  if (std::find(manifest.plans.begin(), manifest.plans.end(), manifest.default_plan) ==
      manifest.plans.end()) {
    root["default_plan"].Refuse("one of plans");
  }
  CheckFiles(manifest, root);
  CheckSizes(manifest, root);
}

}  // namespace embershard
