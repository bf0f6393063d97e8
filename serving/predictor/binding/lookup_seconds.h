// lookup/lookup_times.h over buffers of Python.

#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace embershard::binding {

// Seconds of CPU time of each batch. `rows`: uint8; `ids` and `offsets`: int64, all contiguous.
std::vector<double> LookupSeconds(const pybind11::buffer& rows, const std::string& weights,
                                  size_t dim, const pybind11::buffer& ids,
                                  const pybind11::buffer& offsets);

}  // namespace embershard::binding
