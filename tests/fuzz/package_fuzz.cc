// Parses arbitrary bytes as each text of a package: JSON, manifest.json, a plan, a safetensors file
// and a vocabulary. JSON is also read as a manifest with the right fingerprint, since the check of
// the fingerprint would refuse nearly every change.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/expect.h"
#include "package/id_maps.h"
#include "package/json.h"
#include "package/manifest.h"
#include "package/plan.h"
#include "package/safetensors.h"
#include "package/vocabulary.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t size_max);

namespace embershard {
namespace {

using Json = nlohmann::json;
using fuzz::Expect;

void ExpectRefusal(const Status& status, std::string_view file) {
  Expect(status.code() == StatusCode::kBadPackage, "a refusal blames the package");
  Expect(status.message().find(file) != std::string::npos, "a refusal names the file");
}

const Manifest& Golden() {
  static const Manifest golden = [] {
    std::ifstream file(EMBERSHARD_GOLDEN_FOLDER "/manifest.json", std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const Result<Manifest> manifest = ParseManifest(text);
    Expect(manifest.ok(), "the golden manifest can be read");
    return *manifest;
  }();
  return golden;
}

std::string WithFingerprint(Json document) {
  const Json schema = {{"inputs", document["inputs"]}, {"outputs", document["outputs"]}};
  const std::string canonical = CanonicalJson(schema);
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(canonical.data(), canonical.size())));
  document["schema"] = digits;
  return CanonicalJson(document);
}

// Checks that the shards of each table have the area of the table in total.
void ExpectTiled(const Plan& plan, const Manifest& manifest) {
  std::vector<int64_t> remaining;
  for (const TableSpec& table : manifest.tables) remaining.push_back(table.rows * table.dim);
  for (const Shard& shard : plan.shards) {
    Expect(shard.table < remaining.size() && !shard.devices.empty(), "a shard lies somewhere");
    for (const size_t device : shard.devices) {
      Expect(device < plan.devices.size(), "a shard lies on a device of the plan");
    }
    remaining[shard.table] -=
        (shard.row_end - shard.row_begin) * (shard.column_end - shard.column_begin);
  }
  Expect(std::all_of(remaining.begin(), remaining.end(), [](int64_t area) { return area == 0; }),
         "the shards of a table cover it once");
}

// Checks the properties of a manifest that the server relies on.
void ExpectChecked(const Manifest& manifest) {
  const Schema& schema = manifest.schema;
  for (const SparseInput& input : schema.sparse) {
    Expect(!input.lookups.empty() || !input.sequence_tables.empty(), "an input is looked up");
    for (const LookupSpec& lookup : input.lookups) {
      Expect(lookup.table < manifest.tables.size(), "a lookup names an existing table");
      const size_t end = lookup.column + static_cast<size_t>(manifest.tables[lookup.table].dim);
      Expect(end <= (input.scope == Scope::kRequest ? schema.request_pooled_columns
                                                    : schema.example_pooled_columns),
             "the vector of a lookup lies in the pooled matrix");
    }
  }
  for (const SequenceSpec& sequence : schema.sequences) {
    Expect(sequence.sparse_input < schema.sparse.size() && sequence.table < manifest.tables.size(),
           "a sequence has an input and a table");
  }
  for (const DenseInput& input : schema.dense) {
    Expect(input.column < (input.scope == Scope::kRequest ? schema.request_dense_columns
                                                          : schema.example_dense_columns),
           "a dense input lies in its matrix");
  }
  for (const auto& [path, file] : manifest.files) {
    Expect(path.front() != '/' && file.sha256.size() == 64, "a file lies inside the package");
  }
  Expect(manifest.files.contains(manifest.program.file), "the program is listed");
  Expect(manifest.limits.max_examples > 0 && manifest.limits.max_ids > 0, "limits allow something");
}

void ReadManifest(std::string_view text) {
  const Result<Manifest> manifest = ParseManifest(text);
  if (!manifest.ok()) return ExpectRefusal(manifest.status(), "manifest.json");
  ExpectChecked(*manifest);
}

void ReadJson(std::string_view text) {
  Json document;
  const Status status = ParseJson(text, "any.json", &document);
  if (!status.ok()) return ExpectRefusal(status, "any.json");
  const std::string canonical = CanonicalJson(document);
  Json again;
  Expect(ParseJson(canonical, "any.json", &again).ok(), "canonical JSON is JSON");
  Expect(CanonicalJson(again) == canonical, "canonical JSON does not change");
  if (document.is_object()) ReadManifest(WithFingerprint(document));
}

void ReadPlan(std::string_view text) {
  const Result<Plan> plan = ParsePlan(text, "any", Golden());
  if (!plan.ok()) return ExpectRefusal(plan.status(), "plans/any.json");
  ExpectTiled(*plan, Golden());
}

void ReadTensors(std::string_view bytes) {
  const Result<Safetensors> tensors = Safetensors::Parse(std::string(bytes), "any.safetensors");
  if (!tensors.ok()) return ExpectRefusal(tensors.status(), "any.safetensors");
  for (const auto& [name, tensor] : tensors->tensors()) {
    Expect(tensor.begin <= tensor.end && tensor.end <= bytes.size(), "a tensor lies in the file");
    if (tensor.type != TensorType::kU8) continue;
    const auto view = tensors->Tensor<uint8_t>(name, tensor.shape);
    Expect(view.ok() && view->size() == tensor.end - tensor.begin, "a tensor can be read");
    for (size_t i = 0; i < view->size(); ++i) static_cast<void>((*view)[i]);
  }
}

void ReadVocabulary(std::string_view bytes) {
  const auto vocabulary = Vocabulary::Parse(std::string(bytes), "any.safetensors");
  if (!vocabulary.ok()) return ExpectRefusal(vocabulary.status(), "any.safetensors");
  const auto size = static_cast<int64_t>((*vocabulary)->size());
  std::vector<int64_t> keys = {INT64_MIN, -1, 0, 1, INT64_MAX};
  if (bytes.size() >= sizeof(int64_t)) {
    int64_t key;
    std::memcpy(&key, bytes.data() + bytes.size() - sizeof(key), sizeof(key));
    keys.push_back(key);
  }
  std::vector<int64_t> rows(keys.size());
  (*vocabulary)->FindAll(Unaligned<int64_t>(keys.data(), keys.size()), rows.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    Expect(rows[i] == (*vocabulary)->Find(keys[i]), "many keys are found like one");
    Expect(rows[i] == kZeroRow || (rows[i] >= 0 && rows[i] < size), "a row is one of the table's");
  }
}

// All values of a document, beginning with the document itself.
void Values(Json* document, std::vector<Json*>* values) {
  values->push_back(document);
  if (!document->is_structured()) return;
  for (Json& value : *document) Values(&value, values);
}

// Removes, replaces or adds one value.
void MutateJson(Json* document, std::minstd_rand* random) {
  std::vector<Json*> values;
  Values(document, &values);
  Json* const value = values[(*random)() % values.size()];
  const Json other = *values[(*random)() % values.size()];
  const Json replacements[] = {
      nullptr,       true,      0,         -1,       1,  4,   1.5,
      UINT64_MAX,    INT64_MAX, INT64_MIN, 1U << 31, "", "a", Json::array(),
      Json::object()};
  switch ((*random)() % 4) {
    case 0:
      if (value->is_structured() && !value->empty()) {
        value->erase(std::next(value->begin(), static_cast<int>((*random)() % value->size())));
        break;
      }
      [[fallthrough]];
    case 1:
      *value = other;
      break;
    case 2:
      if (value->is_array()) {
        value->push_back(other);
        break;
      }
      [[fallthrough]];
    default:
      *value = replacements[(*random)() % std::size(replacements)];
  }
}

}  // namespace
}  // namespace embershard

// Changes one value of a JSON document. One time in three, or if the bytes are no JSON, libFuzzer
// changes any bytes instead.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max,
                                          unsigned int seed) {
  using namespace embershard;
  std::minstd_rand random(seed);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Json document;
  if (random() % 3 == 0 || !ParseJson(text, "any.json", &document).ok()) {
    return LLVMFuzzerMutate(data, size, size_max);
  }
  MutateJson(&document, &random);
  const std::string changed = CanonicalJson(document);
  if (changed.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::memcpy(data, changed.data(), changed.size());
  return changed.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace embershard;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ReadJson(bytes);
  ReadManifest(bytes);
  ReadPlan(bytes);
  ReadTensors(bytes);
  ReadVocabulary(bytes);
  return 0;
}
