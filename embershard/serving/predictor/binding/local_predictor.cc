#include <pybind11/numpy.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "binding/module.h"
#include "engine/model_runner.h"
#include "engine/self_check.h"
#include "tensors/find_names.h"
#include "tensors/packed.h"

namespace embershard::binding {
namespace {

constexpr PackedNames kNames = {.request_dense = "request_dense",
                                .example_dense = "example_dense",
                                .lengths = "lengths",
                                .values = "values",
                                .weights = "weights"};

struct Answer {
  Status status = Internal("not answered");
  Response response;
};

struct Views {
  uint32_t num_examples = 0;
  PackedArrays arrays;
};

template <class T>
Unaligned<T> ViewOf(const py::handle& value) {
  const auto array = py::cast<py::array_t<T, py::array::c_style>>(value);
  return Unaligned<T>(array.data(), static_cast<size_t>(array.size()));
}

Views ViewsOf(const py::tuple& request) {
  const auto examples = request[0].cast<uint64_t>();
  return {.num_examples = static_cast<uint32_t>(
              std::min<uint64_t>(examples, std::numeric_limits<uint32_t>::max())),
          .arrays = {.request_dense = ViewOf<float>(request[1]),
                     .example_dense = ViewOf<float>(request[2]),
                     .lengths = ViewOf<int32_t>(request[3]),
                     .values = ViewOf<int64_t>(request[4]),
                     .weights = ViewOf<float>(request[5])}};
}

py::tuple ToPython(const Schema& schema, const Views& request, const Response& response) {
  py::dict outputs;
  for (const ResponseOutput& output : response.outputs) {
    const OutputSpec& spec = schema.outputs[output.output];
    std::vector<int64_t> shape = {spec.scope == Scope::kRequest ? 1
                                                                : int64_t{request.num_examples}};
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    outputs[spec.name.c_str()] = py::array_t<float>(shape, output.values.data());
  }
  py::dict unknown_ids;
  for (const UnknownIdCount& unknown : response.unknown_ids) {
    unknown_ids[schema.sparse[unknown.sparse_input].name.c_str()] = unknown.count;
  }
  return py::make_tuple(outputs, unknown_ids);
}

Result<std::unique_ptr<ModelRunner>> Start(const PredictorArguments& arguments) {
  ASSIGN_OR_RETURN(std::unique_ptr<Model> loaded,
                   LoadPackageModel(arguments.folder, arguments.model));
  const size_t threads = loaded->slots();
  return ModelRunner::Start(std::move(loaded), {}, kSampleTolerance, threads);
}

class LocalPredictor {
 public:
  // Raises if FBGEMM or the package cannot be loaded or a sample fails.
  explicit LocalPredictor(const PredictorArguments& arguments)
      : runner_(ValueOrRaise(WithoutGil([&] {
          return CatchExhaustion<Result<std::unique_ptr<ModelRunner>>>(
              [&] { return Start(arguments); });
        }))) {}

  ~LocalPredictor() {
    WithoutGil([this] { runner_.reset(); });
  }

  py::bytes GetModel() const {
    return py::bytes(rpc::GetModelSerialized(runner_->manifest(), runner_->limits()));
  }

  const ProgramReport& program() const { return runner_->model().program(); }

  // Runs the requests, merged into batches, and returns a list with one element per request.
  //
  //   request  (num_examples, request_dense, example_dense, lengths, values, weights), see
  //            SampleRequest. The arrays are not copied.
  //   result   ({output: array}, {feature: number of unknown ids}), or an exception
  //
  // `outputs` are the outputs to return, empty for all. Raises if one is unknown.
  py::list PredictMerged(const std::vector<py::tuple>& requests,
                         const std::vector<std::string>& outputs) {
    const Schema& schema = runner_->manifest().schema;
    const std::vector<size_t> wanted = ValueOrRaise(FindOutputs(schema, runner_->names(), outputs));
    std::vector<Views> views;
    for (const py::tuple& request : requests) views.push_back(ViewsOf(request));
    std::vector<Answer> answers(requests.size());
    WithoutGil([&] {
      std::vector<std::unique_ptr<Request>> split;
      for (size_t i = 0; i < views.size(); ++i) {
        auto request = std::make_unique<Request>();
        request->num_examples = views[i].num_examples;
        request->outputs_wanted = wanted;
        request->arrival = Clock::now();
        request->answer = [answer = &answers[i]](Status status, Response response) {
          *answer = {std::move(status), std::move(response)};
        };
        Status status =
            SplitPacked(schema, runner_->limits(), views[i].arrays, request.get(), kNames);
        if (status.ok()) {
          split.push_back(std::move(request));
        } else {
          answers[i].status = std::move(status);
        }
      }
      runner_->PredictMerged(std::move(split));
    });
    py::list results;
    for (size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].status.ok()) {
        results.append(ToPython(schema, views[i], answers[i].response));
      } else {
        results.append(ToPythonError(answers[i].status));
      }
    }
    return results;
  }

 private:
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace

void DefineLocalPredictor(py::module_& module) {
  py::class_<LocalPredictor>(module, "LocalPredictor")
      .def(py::init([](const py::kwargs& kwargs) {
        return std::make_unique<LocalPredictor>(PredictorArgumentsFrom(kwargs));
      }))
      .def("get_model", &LocalPredictor::GetModel)
      .def("program",
           [](const LocalPredictor& predictor) { return ProgramDict(predictor.program()); })
      .def("predict_merged", &LocalPredictor::PredictMerged, py::arg("requests"),
           py::arg("outputs"));
}

}  // namespace embershard::binding
