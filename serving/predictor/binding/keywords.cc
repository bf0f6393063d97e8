#include "binding/keywords.h"

#include <algorithm>

#include "base/status.h"
#include "binding/errors.h"

namespace embershard {
namespace {

namespace py = pybind11;

constexpr double kNumberMax = (1U << 31) - 1;

}  // namespace

double NumberInRange(const std::string& name, double value) {
  if (!(value >= 0 && value <= kNumberMax)) {
    RaiseIfFailed(InvalidArgument(name + ": expected 0..2147483647, got " + std::to_string(value)));
  }
  return value;
}

void Keywords::CheckAllRead() const {
  for (const auto& [key, value] : given_) {
    const auto name = key.cast<std::string>();
    if (std::ranges::find(read_, name) != read_.end()) continue;
    std::string known;
    for (const std::string& each : read_) known += (known.empty() ? "" : ", ") + each;
    throw py::type_error(call_ + ": no keyword '" + name + "', expected " + known);
  }
}

py::object Keywords::Value(const char* name) {
  read_.emplace_back(name);
  if (!given_.contains(name)) throw py::type_error(call_ + ": expected the keyword '" + name + "'");
  return given_[name];
}

void Keywords::RefuseType(const char* name, const py::object& value) const {
  throw py::type_error(call_ + ": keyword '" + name + "': got " +
                       py::repr(value).cast<std::string>() + ", which does not fit");
}

}  // namespace embershard
