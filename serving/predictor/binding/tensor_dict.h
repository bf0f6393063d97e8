// What a model takes and gives as tensors, for serving/triton: its configuration for Triton says
// the same as our own server does.

#ifndef EMBERSHARD_BINDING_TENSOR_DICT_H_
#define EMBERSHARD_BINDING_TENSOR_DICT_H_

#include <pybind11/pybind11.h>

#include <string>

namespace embershard {

// {"inputs": [{name, datatype, shape}], "outputs": [...]}, as tensors/tensor_specs.h says them:
// FP32, INT32 or INT64; -1 in a shape is any size. manifest: the text of manifest.json. Raises
// PackageError where it is none. REQUIRES: the GIL.
pybind11::dict DescribeTensors(const std::string& manifest);

}  // namespace embershard

#endif  // EMBERSHARD_BINDING_TENSOR_DICT_H_
