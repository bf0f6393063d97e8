#include "tensors/find_names.h"

#include <string>

#include "batching/request_validation.h"

namespace embershard {
namespace {

template <class Specs>
std::string NamesOf(const Specs& specs) {
  std::string names;
  for (const auto& spec : specs) names += (names.empty() ? "'" : ", '") + spec.name + "'";
  return names.empty() ? "none" : names;
}

template <class Specs>
Result<size_t> FindInput(const SchemaNames::Positions& positions, const Specs& specs,
                         const char* kind, std::string_view name) {
  const auto position = positions.find(name);
  if (position != positions.end()) return position->second;
  return InvalidArgument(Feature(std::string(name)), "not a ", kind,
                         " input of the model, expected one of ", NamesOf(specs));
}

}  // namespace

Result<size_t> FindDense(const Schema& schema, const SchemaNames& names, std::string_view name) {
  return FindInput(names.dense, schema.dense, "dense", name);
}

Result<size_t> FindSparse(const Schema& schema, const SchemaNames& names, std::string_view name) {
  return FindInput(names.sparse, schema.sparse, "sparse", name);
}

Result<size_t> FindOutput(const Schema& schema, const SchemaNames& names, std::string_view name) {
  const auto position = names.outputs.find(name);
  if (position != names.outputs.end()) return position->second;
  return NotFound("output '", name, "' is not there, expected one of ", NamesOf(schema.outputs));
}

}  // namespace embershard
