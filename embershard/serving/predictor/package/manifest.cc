#include "package/manifest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/hex.h"
#include "package/id_maps.h"
#include "package/json.h"
#include "package/manifest_fields.h"
#include "package/names.h"
#include "package/plan.h"
#include "package/safetensors.h"

namespace embershard {
namespace {

// An empty `key`: the elements themselves must differ.
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
    for (const JsonValue& chunk : table["chunks"].Elements()) {
      named.push_back({chunk, chunk.Text()});
    }
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

// Files that are read as a whole take memory before any check.
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

// Checks rules across fields: names are distinct, every named file is in `files` and named once,
// and files that are read as a whole are not too large.
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

void CheckProducer(const JsonValue& value) {
  value.ExpectKeys({"embershard", "torch", "fbgemm_gpu"});
  for (const auto& [key, version] : value.Members()) (void)version.Text();
}

DenseType ReadDenseType(const JsonValue& value) {
  return value.Choice<DenseType>(
      {{"float32", DenseType::kFloat32}, {"bfloat16", DenseType::kBfloat16}});
}

// Returns the file of a program that earlier versions compiled for one kind of machine.
std::string ReadCompiledProgram(const JsonValue& value) {
  value.ExpectKeys({"kind", "target", "dtype", "torch", "instructions", "file"});
  (void)ReadPlainName(value["target"]);
  (void)ReadDenseType(value["dtype"]);
  (void)ReadPlainName(value["torch"]);
  for (const JsonValue& instruction : value["instructions"].Elements(1)) {
    (void)ReadPlainName(instruction);
  }
  return ReadFilePath(value["file"]);
}

ProgramSpec ReadProgram(const JsonValue& value) {
  value.ExpectKeys({"kind", "target", "dtype", "file"});
  value["target"].Choice<bool>({{kTorchScriptTarget, true}});
  return {.type = ReadDenseType(value["dtype"]), .file = ReadFilePath(value["file"])};
}

void ReadPrograms(const JsonValue& value, Manifest* manifest) {
  for (const JsonValue& program : value.Elements(1)) {
    if (!program.ExpectObject()) continue;
    if (program["kind"].Choice<bool>({{"torchscript", false}, {"aotinductor", true}})) {
      manifest->compiled_programs.push_back(ReadCompiledProgram(program));
    } else {
      manifest->program = ReadProgram(program);
    }
  }
  if (manifest->program.file.empty()) value.Refuse("one of kind torchscript", "none");
}

Limits ReadLimits(const JsonValue& value) {
  value.ExpectKeys({"max_examples", "max_ids"});
  return {.max_examples = static_cast<uint32_t>(value["max_examples"].Integer(1, kLengthMax)),
          .max_ids = value["max_ids"].Unsigned(1, kLengthMax)};
}

FileSpec ReadFileSpec(const JsonValue& value) {
  value.ExpectKeys({"bytes", "sha256"});
  return {.bytes = value["bytes"].Unsigned(0, INT64_MAX),
          .sha256 = value["sha256"].TextThat([](std::string_view text) { return IsHex(text, 64); },
                                             "64 hex digits")};
}

// The digest depends on how numbers are written, not on their values.
uint64_t ReadFingerprint(const JsonValue& root) {
  const std::string text = root["schema"].TextThat(
      [](std::string_view text) { return IsHex(text, 16); }, "16 hex digits");
  const nlohmann::json digested = {{"inputs", root["inputs"].json()},
                                   {"outputs", root["outputs"].json()}};
  const std::string canonical = CanonicalJson(digested);
  const uint64_t expected = XXH3_64bits(canonical.data(), canonical.size());
  uint64_t fingerprint = 0;
  std::from_chars(text.data(), text.data() + text.size(), fingerprint, 16);
  if (fingerprint != expected) root["schema"].Refuse(Hex(expected));
  return expected;
}

void ReadManifest(const JsonValue& root, Manifest* manifest) {
  CheckFormatVersion(root);
  root.ExpectKeys({"format_version", "model", "version", "producer", "schema", "inputs", "outputs",
                   "tables", "programs", "plans", "default_plan", "limits", "samples", "files"});
  manifest->model = ReadPlainName(root["model"]);
  manifest->version = root["version"].Integer(1, INT64_MAX);
  CheckProducer(root["producer"]);
  for (const JsonValue& table : root["tables"].Elements()) {
    manifest->tables.push_back(ReadTable(table));
  }
  ReadSchema(root["inputs"], root["outputs"], manifest->tables, &manifest->schema);
  ReadPrograms(root["programs"], manifest);
  for (const JsonValue& plan : root["plans"].Elements(1)) {
    manifest->plans.push_back(ReadPlainName(plan));
  }
  manifest->default_plan = ReadPlainName(root["default_plan"]);
  manifest->limits = ReadLimits(root["limits"]);
  manifest->samples = ReadFilePath(root["samples"]);
  for (const auto& [file, spec] : root["files"].Members()) {
    if (!IsFilePath(file)) spec.Refuse("a path inside the package", file);
    manifest->files.emplace(file, ReadFileSpec(spec));
  }
}

}  // namespace

Result<Manifest> ParseManifest(std::string_view json) {
  nlohmann::json document;
  RETURN_IF_ERROR(ParseJson(json, kManifestFile, &document));

  FirstRefusal refusal(kManifestFile);
  const JsonValue root(document, &refusal);
  Manifest manifest;
  ReadManifest(root, &manifest);
  if (refusal.ok()) CheckManifest(manifest, root);
  if (refusal.ok()) manifest.schema.fingerprint = ReadFingerprint(root);
  if (!refusal.ok()) return refusal.status();
  return manifest;
}

}  // namespace embershard
