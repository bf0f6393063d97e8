#include "binding/module.h"

#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "base/bus_error.h"
#include "base/core_count.h"
#include "binding/arguments.h"
#include "binding/errors.h"
#include "binding/metrics.h"
#include "package/manifest.h"
#include "package/package.h"
#include "package/trusted_keys.h"
#include "tensors/tensor_specs.h"

namespace embershard::binding {
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

// What a model takes and gives as tensors, for serving/triton: {"inputs": [{name, datatype,
// shape}], "outputs": [...]}, as tensors/tensor_specs.h says them; -1 in a shape is any size.
// `manifest`: the text of manifest.json. Raises PackageError if it is none.
py::dict DescribeTensors(const std::string& manifest) {
  const Schema schema = ValueOrRaise(ParseManifest(manifest)).schema;
  return py::dict("inputs"_a = ToList(InputSpecs(schema)),
                  "outputs"_a = ToList(OutputSpecs(schema)));
}

}  // namespace

py::dict ProgramDict(const ProgramReport& program) {
  return py::dict("target"_a = ToPythonText(program.target), "why"_a = ToPythonText(program.why));
}

PYBIND11_MODULE(_predictor, module) {
  DefineServer(module);
  DefineLocalPredictor(module);
  DefineLookupSeconds(module);
  module.def("example_metrics", &ExampleMetricList);
  module.def("core_count", [] { return CoreCount(); });
  module.def("explain_bus_errors", &ExplainBusErrors);
  // Why the files cannot be used; empty where they can.
  module.def("check_security", [](const py::kwargs& given) {
    return ToPythonText(rpc::CheckSecurity(SecurityOptionsFrom(given)).message());
  });
  // Likewise of a file of public keys.
  module.def(
      "check_trusted_key",
      [](const std::string& path) {
        return ToPythonText(TrustedKeys::Read(path).status().message());
      },
      py::arg("path"));
  module.def(
      "verify_package",
      [](const std::string& folder) {
        RaiseIfFailed(Released([&] { return VerifyPackage(folder); }));
      },
      py::arg("folder"));
  module.def("describe_tensors", &DescribeTensors, py::arg("manifest"));
}

}  // namespace embershard::binding
