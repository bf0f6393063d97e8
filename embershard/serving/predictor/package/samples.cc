#include "package/samples.h"

#include <algorithm>
#include <set>
#include <string>

#include "package/folder.h"
#include "package/refusal.h"
#include "package/safetensors.h"

namespace embershard {
namespace {

constexpr size_t kNumberDigitsMax = 6;

// Accepts "0" or "17", but no leading zeros, so that each number has only one name.
bool IsNumber(std::string_view text) {
  return !text.empty() && text.size() <= kNumberDigitsMax && (text[0] != '0' || text.size() == 1) &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// True for "<number>/<part>". Accepts any output name; outputs are checked later for each sample.
bool IsSampleTensor(std::string_view name, std::string_view* number) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  *number = name.substr(0, slash);
  const std::string_view part = name.substr(slash + 1);
  return IsNumber(*number) &&
         (part.starts_with("output/") || part == "request_dense" || part == "example_dense" ||
          part == "lengths" || part == "values" || part == "weights");
}

Result<size_t> CountSamples(const Safetensors& file) {
  std::set<std::string_view> numbers;
  for (const auto& [name, tensor] : file.tensors()) {
    std::string_view number;
    if (!IsSampleTensor(name, &number)) return Unexpected(file.file(), name, "tensor");
    numbers.insert(number);
  }
  if (!numbers.empty()) return numbers.size();
  return Refusal(file.file(), "0/example_dense", "at least one sample", "none");
}

// Each step uses the results of the steps before it.
class SampleReader {
 public:
  SampleReader(const Safetensors& file, const Manifest& manifest, size_t number)
      : file_(file), manifest_(manifest), prefix_(std::to_string(number) + "/") {}

  Result<SampleRequest> Read() {
    using Step = Status (SampleReader::*)();
    for (const Step step : {&SampleReader::ReadDense, &SampleReader::ReadLengths,
                            &SampleReader::ReadIds, &SampleReader::ReadOutputs}) {
      RETURN_IF_ERROR((this->*step)());
    }
    return std::move(sample_);
  }

 private:
  uint64_t CountOf(Scope scope) const {
    return scope == Scope::kRequest ? 1 : uint64_t{sample_.num_examples};
  }

  template <class T>
  Status ReadTensor(const std::string& part, const std::vector<uint64_t>& shape,
                    std::vector<T>* values) {
    ASSIGN_OR_RETURN(Unaligned<T> tensor, file_.Tensor<T>(prefix_ + part, shape));
    values->resize(tensor.size());
    tensor.CopyTo(values->data());
    return {};
  }

  Status Refuse(const std::string& part, const std::string& expected, uint64_t got) const {
    return Refusal(file_.file(), prefix_ + part, expected, std::to_string(got));
  }

  Status ReadDense() {
    const Schema& schema = manifest_.schema;
    RETURN_IF_ERROR(
        ReadTensor("request_dense", {schema.request_dense_columns}, &sample_.request_dense));
    const StoredTensor* stored = file_.Find(prefix_ + "example_dense");
    const uint64_t examples = stored == nullptr || stored->shape.empty() ? 1 : stored->shape[0];
    if (examples < 1 || examples > manifest_.limits.max_examples) {
      return Refuse("example_dense",
                    "1 .. " + std::to_string(manifest_.limits.max_examples) + " examples",
                    examples);
    }
    sample_.num_examples = static_cast<uint32_t>(examples);
    return ReadTensor("example_dense", {examples, schema.example_dense_columns},
                      &sample_.example_dense);
  }

  Status ReadLengths() {
    uint64_t lists = 0;
    for (const SparseInput& input : manifest_.schema.sparse) lists += CountOf(input.scope);
    RETURN_IF_ERROR(ReadTensor("lengths", {lists}, &sample_.lengths));
    auto length = sample_.lengths.begin();
    for (const SparseInput& input : manifest_.schema.sparse) {
      for (uint64_t i = 0; i < CountOf(input.scope); ++i, ++length) {
        if (*length < 0) {
          return Refusal(file_.file(), prefix_ + "lengths", "no negative length",
                         std::to_string(*length));
        }
        ids_ += static_cast<uint64_t>(*length);
        if (input.weighted) weighted_ids_ += static_cast<uint64_t>(*length);
      }
    }
    return {};
  }

  Status ReadIds() {
    if (ids_ > manifest_.limits.max_ids) {
      return Refuse("values", "at most " + std::to_string(manifest_.limits.max_ids) + " ids", ids_);
    }
    RETURN_IF_ERROR(ReadTensor("values", {ids_}, &sample_.values));
    return ReadTensor("weights", {weighted_ids_}, &sample_.weights);
  }

  Status ReadOutputs() {
    const std::string prefix = prefix_ + "output/";
    std::set<std::string> known;
    for (const OutputSpec& output : manifest_.schema.outputs) {
      std::vector<uint64_t> shape = {CountOf(output.scope)};
      shape.insert(shape.end(), output.shape.begin(), output.shape.end());
      std::vector<float>& values = sample_.outputs.emplace_back();
      RETURN_IF_ERROR(ReadTensor("output/" + output.name, shape, &values));
      known.insert(prefix + output.name);
    }
    for (auto at = file_.tensors().lower_bound(prefix);
         at != file_.tensors().end() && at->first.starts_with(prefix); ++at) {
      if (!known.contains(at->first)) {
        return Unexpected(file_.file(), at->first, "tensor");
      }
    }
    return {};
  }

  const Safetensors& file_;
  const Manifest& manifest_;
  const std::string prefix_;  // The sample's number and a slash, such as "3/".
  SampleRequest sample_;
  uint64_t ids_ = 0;
  uint64_t weighted_ids_ = 0;
};

}  // namespace

Result<std::vector<SampleRequest>> ReadSamples(const std::filesystem::path& path,
                                               const Manifest& manifest) {
  ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Open(path));
  ASSIGN_OR_RETURN(std::string bytes, ReadListedFile(folder, manifest, manifest.samples));
  ASSIGN_OR_RETURN(Safetensors file, Safetensors::Parse(std::move(bytes), manifest.samples));
  ASSIGN_OR_RETURN(size_t count, CountSamples(file));
  std::vector<SampleRequest> samples;
  for (size_t number = 0; number < count; ++number) {
    ASSIGN_OR_RETURN(SampleRequest sample, SampleReader(file, manifest, number).Read());
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace embershard
