#include "binding/tensor_dict.h"

#include <pybind11/stl.h>

#include <vector>

#include "binding/errors.h"
#include "package/manifest.h"
#include "tensors/tensor_specs.h"

namespace embershard {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

py::list ToList(const std::vector<TensorSpec>& specs) {
  py::list list;
  for (const TensorSpec& spec : specs) {
    list.append(py::dict("name"_a = ToPythonText(spec.name),
                         "datatype"_a = py::str(spec.datatype.data(), spec.datatype.size()),
                         "shape"_a = spec.shape));
  }
  return list;
}

}  // namespace

py::dict DescribeTensors(const std::string& manifest) {
  const Result<Manifest> parsed = ParseManifest(manifest);
  RaiseIfFailed(parsed.status());
  return py::dict("inputs"_a = ToList(InputSpecs(parsed->schema)),
                  "outputs"_a = ToList(OutputSpecs(parsed->schema)));
}

}  // namespace embershard
