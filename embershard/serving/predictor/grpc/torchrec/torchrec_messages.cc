#include "grpc/torchrec/torchrec_messages.h"

#include <cstddef>
#include <cstring>
#include <numeric>
#include <string>

#include "base/unaligned.h"
#include "batching/request_validation.h"
#include "engine/engine.h"

namespace embershard::rpc {
namespace {

using predictor::FloatFeatures;
using predictor::PredictionRequest;
using predictor::SparseFeatures;

Status CheckCount(const std::string& where, uint64_t expected, int64_t got, const char* meaning) {
  if (got >= 0 && static_cast<uint64_t>(got) == expected) return {};
  return InvalidArgument(where, ": expected ", expected, " (", meaning, "), got ", got);
}

template <class T>
bool Same(Unaligned<T> a, Unaligned<T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.bytes(), b.bytes(), a.size() * sizeof(T)) == 0);
}

Status NotTheSame(const std::string& name, size_t example) {
  return InvalidArgument(Feature(name), "in request scope, expected the same in every example, ",
                         "got another at example ", example);
}

Status ParseDense(const FloatFeatures& group, const Schema& schema, Request* request) {
  const size_t columns = schema.dense.size();
  const size_t rows = request->num_examples;
  RETURN_IF_ERROR(
      CheckCount("float_features.num_features", columns, group.num_features(), "dense inputs"));
  Unaligned<float> values;
  RETURN_IF_ERROR(View(group.values(), "float_features.values", &values));
  RETURN_IF_ERROR(CheckCount("float_features.values", uint64_t{rows} * columns,
                             static_cast<int64_t>(values.size()), "batch_size x dense inputs"));
  if (rows == 0) return {};
  for (size_t column = 0; column < columns; ++column) {
    const bool per_request = schema.dense[column].scope == Scope::kRequest;
    for (size_t row = 1; per_request && row < rows; ++row) {
      if (!Same(values.Slice(column, 1), values.Slice(row * columns + column, 1))) {
        return NotTheSame(schema.dense[column].name, row);
      }
    }
    request->dense[column] = {
        per_request ? values.Slice(column, 1) : values.Slice(column, values.size() - column),
        per_request ? 1 : columns};
  }
  return {};
}

// One group of sparse inputs. Take() cuts the next input off its front.
class Group {
 public:
  // `ids` must have the capacity for the values, which are appended widened to 64 bits.
  Group(const char* name, bool weighted, std::vector<int64_t>* ids)
      : name_(name), weighted_(weighted), ids_(ids) {}

  Status Open(const SparseFeatures& group, size_t inputs, size_t rows) {
    const char* const which =
        weighted_ ? "weighted sparse inputs" : "sparse inputs without weights";
    RETURN_IF_ERROR(CheckCount(Part("num_features"), inputs, group.num_features(), which));
    RETURN_IF_ERROR(View(group.lengths(), Part("lengths"), &lengths_));
    RETURN_IF_ERROR(CheckCount(Part("lengths"), uint64_t{inputs} * rows,
                               static_cast<int64_t>(lengths_.size()), "num_features x batch_size"));
    Unaligned<int32_t> values;
    RETURN_IF_ERROR(View(group.values(), Part("values"), &values));
    RETURN_IF_ERROR(View(group.weights(), Part("weights"), &weights_));
    const size_t before = ids_->size();
    for (size_t i = 0; i < values.size(); ++i) ids_->push_back(values[i]);
    values_ = Unaligned<int64_t>(ids_->data() + before, values.size());
    return CheckCount(Part("weights"), weighted_ ? values.size() : 0,
                      static_cast<int64_t>(weights_.size()),
                      weighted_ ? "one for each value" : "none, these inputs have no weights");
  }

  Status Take(const SparseInput& input, size_t rows, SparseView* view) {
    view->lengths = lengths_.Slice(list_, rows);
    ASSIGN_OR_RETURN(const uint64_t sum, SumLengths(input, view->lengths));
    // Views stay inside their arrays. Lengths that exceed them are refused at the end.
    const bool inside = value_ + sum <= values_.size();
    if (inside) {
      view->values = values_.Slice(value_, sum);
      if (weighted_) view->weights = weights_.Slice(value_, sum);
    }
    list_ += rows;
    value_ += sum;
    if (!inside || input.scope == Scope::kExample || rows == 0) return {};
    return TakeFirst(input, view);
  }

  Status CheckTaken() const {
    return CheckCount(Part("values"), value_, static_cast<int64_t>(values_.size()),
                      "the sum of the lengths");
  }

 private:
  std::string Part(const char* part) const { return std::string(name_) + "." + part; }
  // For an input in request scope: its first list. All of its lists must be equal.
  Status TakeFirst(const SparseInput& input, SparseView* view) const {
    const auto size = static_cast<size_t>(view->lengths[0]);
    const auto values = view->values.Slice(0, size);
    const auto weights = weighted_ ? view->weights.Slice(0, size) : Unaligned<float>();
    for (size_t row = 1; row < view->lengths.size(); ++row) {
      const bool same = view->lengths[row] == view->lengths[0] &&
                        Same(view->values.Slice(row * size, size), values) &&
                        (!weighted_ || Same(view->weights.Slice(row * size, size), weights));
      if (!same) return NotTheSame(input.name, row);
    }
    *view = {.lengths = view->lengths.Slice(0, 1), .values = values, .weights = weights};
    return {};
  }

  const char* const name_;
  const bool weighted_;
  std::vector<int64_t>* const ids_;
  Unaligned<int32_t> lengths_;
  Unaligned<int64_t> values_;
  Unaligned<float> weights_;
  size_t list_ = 0;   // Taken so far.
  size_t value_ = 0;  // Taken so far, and how many the lengths ask for.
};

Status ParseGroup(const char* name, const SparseFeatures& message, bool weighted,
                  const Schema& schema, std::vector<int64_t>* ids, Request* request) {
  size_t inputs = 0;
  for (const SparseInput& input : schema.sparse) inputs += input.weighted == weighted ? 1 : 0;
  Group group(name, weighted, ids);
  RETURN_IF_ERROR(group.Open(message, inputs, request->num_examples));
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    if (schema.sparse[i].weighted != weighted) continue;
    RETURN_IF_ERROR(group.Take(schema.sparse[i], request->num_examples, &request->sparse[i]));
  }
  return group.CheckTaken();
}

template <class Features>
Status CheckUnserved(const char* name, const Features& features) {
  if (features.num_features() == 0 && features.values().empty()) return {};
  return InvalidArgument(name, ": expected none, got some; models here have no such inputs");
}

// Fills num_examples, all outputs and the views over `message` and `ids` (its ids, widened to 64
// bits). Features come in the manifest's order:
//
//   float_features           dense inputs
//   id_list_features         sparse inputs without weights
//   id_score_list_features   weighted ones
//
// A missing group leaves its inputs out. Inputs in request scope come once per example like all
// others; they must be equal, and the first is taken. Errors are kInvalidArgument; CheckRequest()
// checks everything else.
Status ParseTorchRec(const PredictionRequest& message, const Schema& schema, const Limits& limits,
                     std::vector<int64_t>* ids, Request* request) {
  if (message.batch_size() < 0) {
    return InvalidArgument("batch_size: expected 0 or more, got ", message.batch_size());
  }
  request->num_examples = static_cast<uint32_t>(message.batch_size());
  request->outputs_wanted.resize(schema.outputs.size());
  std::iota(request->outputs_wanted.begin(), request->outputs_wanted.end(), size_t{0});
  RETURN_IF_ERROR(CheckNumExamples(schema, limits, *request));
  RETURN_IF_ERROR(CheckUnserved("embedding_features", message.embedding_features()));
  RETURN_IF_ERROR(CheckUnserved("unary_features", message.unary_features()));

  const SparseFeatures& plain = message.id_list_features();
  const SparseFeatures& weighted = message.id_score_list_features();
  ids->clear();
  ids->reserve((plain.values().size() + weighted.values().size()) / sizeof(int32_t));
  request->dense.assign(schema.dense.size(), {});
  request->sparse.assign(schema.sparse.size(), {});
  if (message.has_float_features()) {
    RETURN_IF_ERROR(ParseDense(message.float_features(), schema, request));
  }
  if (message.has_id_list_features()) {
    RETURN_IF_ERROR(ParseGroup("id_list_features", plain, false, schema, ids, request));
  }
  if (!message.has_id_score_list_features()) return {};
  return ParseGroup("id_score_list_features", weighted, true, schema, ids, request);
}

// The key under which TorchRec's clients expect the scores.
constexpr char kDefault[] = "default";

size_t DefaultOutput(const Schema& schema) {
  for (size_t i = 0; i < schema.outputs.size(); ++i) {
    if (schema.outputs[i].name == kDefault) return i;
  }
  return 0;
}

}  // namespace

Result<std::shared_ptr<Engine>> TorchRecMessages::Find(const ServedModels& served) const {
  return served.Route("", 0, "", "");
}

Status TorchRecMessages::Parse(const Engine& engine, Request* request) {
  const Status status =
      ParseTorchRec(messages_.asked(), engine.manifest().schema, engine.limits(), &ids_, request);
  request->held_bytes = messages_.held_bytes() + ids_.capacity() * sizeof(int64_t);
  return status;
}

void TorchRecMessages::Fill(const Engine& engine, const Response& answer) {
  const Schema& schema = engine.manifest().schema;
  const size_t by_default = DefaultOutput(schema);
  auto& predictions = *messages_.answer().mutable_predictions();
  for (const ResponseOutput& output : answer.outputs) {
    const bool is_default = output.output == by_default;
    predictions[is_default ? kDefault : schema.outputs[output.output].name].mutable_data()->Add(
        output.values.begin(), output.values.end());
  }
}

}  // namespace embershard::rpc
