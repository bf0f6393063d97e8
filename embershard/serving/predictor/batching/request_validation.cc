#include "batching/request_validation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/hex.h"
#include "batching/truncation.h"

namespace embershard {
namespace {

Status CheckIsFor(const Schema& schema, const Request& request) {
  if (request.schema.value_or(schema.fingerprint) != schema.fingerprint) {
    return {StatusCode::kFailedPrecondition,
            StrCat("request: expected schema ", Hex(schema.fingerprint), ", got ",
                   Hex(*request.schema), ": it was made for another engine")};
  }
  if (request.dense.size() != schema.dense.size() ||
      request.sparse.size() != schema.sparse.size()) {
    return InvalidArgument("request: expected ", schema.dense.size(), " dense and ",
                           schema.sparse.size(), " sparse inputs, got ", request.dense.size(),
                           " and ", request.sparse.size());
  }
  size_t least = 0;
  for (const size_t output : request.outputs_wanted) {
    if (output < least || output >= schema.outputs.size()) {
      return InvalidArgument("request: outputs_wanted: expected ascending positions below ",
                             schema.outputs.size(), ", got ", output);
    }
    least = output + 1;
  }
  return {};
}

std::string FloatText(float value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

std::string ExampleText(Scope scope, size_t example) {
  return scope == Scope::kRequest ? "" : " at example " + std::to_string(example);
}

// Text such as " at example 1, position 0".
std::string PlaceText(const SparseInput& input, const SparseView& view, size_t index) {
  size_t list = 0;
  for (; index >= static_cast<size_t>(view.lengths[list]); ++list) {
    index -= static_cast<size_t>(view.lengths[list]);
  }
  const std::string position = "position " + std::to_string(index);
  if (input.scope == Scope::kRequest) return " at " + position;
  return ExampleText(input.scope, list) + ", " + position;
}

// Index of the first bad value among those that max_ids keeps; the number of values if there is
// none. find(first, count) searches one run of values; it returns `count` if all are good.
template <class Find>
size_t FindKept(const SparseInput& input, const SparseView& view, Find find) {
  if (view.num_ids == view.values.size()) return find(size_t{0}, view.values.size());
  size_t begin = 0;
  for (size_t list = 0; list < view.lengths.size(); ++list) {
    const auto length = static_cast<size_t>(view.lengths[list]);
    const IdRange kept = Truncate(input, length);
    const size_t position = find(begin + kept.first, kept.count);
    if (position < kept.count) return begin + kept.first + position;
    begin += length;
  }
  return view.values.size();
}

size_t FirstNotFinite(Unaligned<float> values) {
  size_t i = 0;
  while (i < values.size() && std::isfinite(values[i])) ++i;
  return i;
}

Status CountDense(const DenseInput& input, const DenseView& view, size_t num_examples) {
  const size_t expected = ListCount(input.scope, num_examples);
  if (view.values.empty()) {
    if (input.default_value.has_value() || expected == 0) return {};
    return InvalidArgument(Feature(input.name), "missing: expected ", expected,
                           " values, got none (it has no default)");
  }
  const size_t got = (view.values.size() - 1) / view.stride + 1;
  if (got != expected) {
    return InvalidArgument(Feature(input.name), "expected ", expected, " values, got ", got);
  }
  return {};
}

Status CheckDense(const DenseInput& input, const DenseView& view, size_t num_examples) {
  if (view.values.empty()) return {};
  for (size_t i = 0; i < ListCount(input.scope, num_examples); ++i) {
    const float value = view.values[i * view.stride];
    if (std::isfinite(value)) continue;
    return InvalidArgument(Feature(input.name), "value", ExampleText(input.scope, i),
                           " must be finite, got ", FloatText(value));
  }
  return {};
}

Status CountWeights(const SparseInput& input, const SparseView& view) {
  if (!input.weighted) {
    if (view.weights.empty()) return {};
    return InvalidArgument(Feature(input.name), "is not weighted: expected no weights, got ",
                           view.weights.size());
  }
  if (view.weights.size() != view.values.size()) {
    return InvalidArgument(Feature(input.name), "expected ", view.values.size(),
                           " weights, one for each value, got ", view.weights.size());
  }
  return {};
}

Status CheckWeights(const SparseInput& input, const SparseView& view) {
  if (!input.weighted) return {};
  const size_t bad = FindKept(input, view, [&view](size_t first, size_t count) {
    return FirstNotFinite(view.weights.Slice(first, count));
  });
  if (bad == view.values.size()) return {};
  return InvalidArgument(Feature(input.name), "weight", PlaceText(input, view, bad),
                         " must be finite, got ", FloatText(view.weights[bad]));
}

Status CheckIds(const SparseInput& input, const IdMap& id_map, const SparseView& view) {
  if (input.ids.unknown != UnknownIds::kReject) return {};
  const size_t bad = FindKept(input, view, [&id_map, &view](size_t first, size_t count) {
    return id_map.FirstRefused(view.values.Slice(first, count));
  });
  if (bad == view.values.size()) return {};
  const std::string known =
      input.ids.kind == IdMapKind::kIdentity
          ? "in 0.." + std::to_string(input.ids.rows - 1)
          : "one of the " + std::to_string(input.ids.rows) + " in the vocabulary";
  return InvalidArgument(Feature(input.name), "id ", view.values[bad], PlaceText(input, view, bad),
                         " is not ", known, " (policy: reject)");
}

// Number of ids that max_ids keeps, or an error for a list that is too long.
Result<uint64_t> CountKept(const SparseInput& input, Unaligned<int32_t> lengths) {
  uint64_t kept = 0;
  for (size_t list = 0; list < lengths.size(); ++list) {
    const auto length = static_cast<size_t>(lengths[list]);
    if (input.keep == Keep::kReject && input.max_ids > 0 && length > input.max_ids) {
      return InvalidArgument(Feature(input.name), "list", ExampleText(input.scope, list), " has ",
                             length, " ids, expected at most ", input.max_ids);
    }
    kept += Truncate(input, length).count;
  }
  return kept;
}

Status CountSparse(const SparseInput& input, size_t num_examples, SparseView* view) {
  view->num_ids = 0;
  if (view->lengths.empty() && view->values.empty() && view->weights.empty()) return {};
  const size_t lists = ListCount(input.scope, num_examples);
  if (view->lengths.size() != lists) {
    return InvalidArgument(Feature(input.name), "expected ", lists, " lengths, got ",
                           view->lengths.size());
  }
  ASSIGN_OR_RETURN(const uint64_t sum, SumLengths(input, view->lengths));
  if (sum != view->values.size()) {
    return InvalidArgument(Feature(input.name), "lengths sum to ", sum, ", but there are ",
                           view->values.size(), " values");
  }
  ASSIGN_OR_RETURN(view->num_ids, CountKept(input, view->lengths));
  return CountWeights(input, *view);
}

Status CheckCounts(const Schema& schema, const Limits& limits, Request* request) {
  RETURN_IF_ERROR(CheckNumExamples(schema, limits, *request));
  for (size_t i = 0; i < schema.dense.size(); ++i) {
    RETURN_IF_ERROR(CountDense(schema.dense[i], request->dense[i], request->num_examples));
  }
  request->num_ids = 0;
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    RETURN_IF_ERROR(CountSparse(schema.sparse[i], request->num_examples, &request->sparse[i]));
    request->num_ids += request->sparse[i].num_ids;
  }
  if (request->num_ids <= limits.max_ids) return {};
  return InvalidArgument("request: expected at most ", limits.max_ids, " ids, got ",
                         request->num_ids);
}

// Lists the outputs that a request without examples may ask for.
std::string WithoutExamplesText(const Schema& schema) {
  std::string names;
  for (const OutputSpec& output : schema.outputs) {
    if (output.scope == Scope::kRequest) names += (names.empty() ? "'" : ", '") + output.name + "'";
  }
  if (names.empty()) return " (no output is in request scope)";
  return "; without examples, name only outputs in request scope: " + names;
}

}  // namespace

std::string Feature(const std::string& name) { return "feature '" + name + "': "; }

Status GivenTwice(const std::string& name) {
  return InvalidArgument(Feature(name), "given twice, expected once");
}

Status Once(const std::string& name, size_t position, std::vector<bool>* seen) {
  if ((*seen)[position]) return GivenTwice(name);
  (*seen)[position] = true;
  return {};
}

Status CheckNumExamples(const Schema& schema, const Limits& limits, const Request& request) {
  if (request.num_examples >= 1 && request.num_examples <= limits.max_examples) return {};
  const std::vector<size_t>& wanted = request.outputs_wanted;
  const bool without_examples =
      !wanted.empty() && std::all_of(wanted.begin(), wanted.end(), [&schema](size_t output) {
        return schema.outputs[output].scope == Scope::kRequest;
      });
  if (request.num_examples == 0 && without_examples) return {};
  return InvalidArgument("num_examples: expected 1..", limits.max_examples, ", got ",
                         request.num_examples,
                         request.num_examples == 0 ? WithoutExamplesText(schema) : "");
}

Result<uint64_t> SumLengths(const SparseInput& input, Unaligned<int32_t> lengths) {
  uint64_t sum = 0;
  for (size_t list = 0; list < lengths.size(); ++list) {
    const int32_t length = lengths[list];
    if (length < 0) {
      return InvalidArgument(Feature(input.name), "length", ExampleText(input.scope, list),
                             " must not be negative, got ", length);
    }
    sum += static_cast<uint64_t>(length);
  }
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  if (sum > kMax) {
    return InvalidArgument(Feature(input.name), "lengths sum to ", sum, ", expected at most ",
                           kMax);
  }
  return sum;
}

Status CheckRequest(const Model& model, const Limits& limits, Request* request) {
  const Schema& schema = model.manifest().schema;
  RETURN_IF_ERROR(CheckIsFor(schema, *request));
  RETURN_IF_ERROR(CheckCounts(schema, limits, request));
  for (size_t i = 0; i < schema.dense.size(); ++i) {
    RETURN_IF_ERROR(CheckDense(schema.dense[i], request->dense[i], request->num_examples));
  }
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    RETURN_IF_ERROR(CheckWeights(schema.sparse[i], request->sparse[i]));
    RETURN_IF_ERROR(CheckIds(schema.sparse[i], model.id_map(i), request->sparse[i]));
  }
  return {};
}

}  // namespace embershard
