#include "package/manifest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "package/json_parse.h"
#include "package/manifest_fields.h"
#include "package/names.h"

namespace embershard {
namespace {

void CheckProducer(const JsonValue& value) {
  value.ExpectKeys({"embershard", "torch", "fbgemm_gpu"});
  for (const auto& [key, version] : value.Members()) (void)version.Text();
}

DenseType ReadDenseType(const JsonValue& value) {
  return value.Choice<DenseType>(
      {{"float32", DenseType::kFloat32}, {"bfloat16", DenseType::kBfloat16}});
}

CompiledProgramSpec ReadCompiledProgram(const JsonValue& value) {
  value.ExpectKeys({"kind", "target", "dtype", "torch", "instructions", "file"});
  CompiledProgramSpec program;
  program.target = ReadPlainName(value["target"]);
  program.type = ReadDenseType(value["dtype"]);
  program.torch = ReadPlainName(value["torch"]);
  for (const JsonValue& instruction : value["instructions"].Elements(1)) {
    program.instructions.push_back(ReadPlainName(instruction));
  }
  program.file = ReadFilePath(value["file"]);
  return program;
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

// The digest is taken of the numbers as they are written, not of what they mean.
uint64_t ReadFingerprint(const JsonValue& root) {
  const std::string text = root["schema"].TextThat(
      [](std::string_view text) { return IsHex(text, 16); }, "16 hex digits");
  const nlohmann::json digested = {{"inputs", root["inputs"].json()},
                                   {"outputs", root["outputs"].json()}};
  const std::string canonical = CanonicalJson(digested);
  const uint64_t expected = XXH3_64bits(canonical.data(), canonical.size());
  uint64_t fingerprint = 0;
  std::from_chars(text.data(), text.data() + text.size(), fingerprint, 16);
  if (fingerprint != expected) {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(expected));
    root["schema"].Refuse(digits);
  }
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
