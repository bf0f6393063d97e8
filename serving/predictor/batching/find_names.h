// Names that a request gives, found in the schema or refused.

#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"
#include "package/schema_names.h"

namespace embershard {

// Position in Schema::dense, in Schema::sparse. kInvalidArgument where there is no such input: it
// lists those that there are.
Result<size_t> FindDense(const Schema& schema, const SchemaNames& names, std::string_view name);
Result<size_t> FindSparse(const Schema& schema, const SchemaNames& names, std::string_view name);

// Position in Schema::outputs. kNotFound where there is no such output.
Result<size_t> FindOutput(const Schema& schema, const SchemaNames& names, std::string_view name);

// Positions in Schema::outputs of all `wanted`, which is a range of strings: each once, ascending;
// all outputs where none are named.
template <class Wanted>
Result<std::vector<size_t>> FindOutputs(const Schema& schema, const SchemaNames& names,
                                        const Wanted& wanted) {
  std::vector<bool> found(schema.outputs.size(), wanted.empty());
  for (const auto& name : wanted) {
    const Result<size_t> position = FindOutput(schema, names, name);
    if (!position.ok()) return position.status();
    found[*position] = true;
  }
  std::vector<size_t> positions;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) positions.push_back(i);
  }
  return positions;
}

}  // namespace embershard
