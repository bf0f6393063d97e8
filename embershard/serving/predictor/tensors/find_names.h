#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// Positions by name. Immutable, thus thread-safe. The schema must outlive the views into it.
struct SchemaNames {
  using Positions = std::unordered_map<std::string_view, size_t>;

  explicit SchemaNames(const Schema& schema)
      : dense(Of(schema.dense)), sparse(Of(schema.sparse)), outputs(Of(schema.outputs)) {}

  const Positions dense;    // Positions in Schema::dense.
  const Positions sparse;   // Positions in Schema::sparse.
  const Positions outputs;  // Positions in Schema::outputs.

 private:
  template <class Specs>
  static Positions Of(const Specs& specs) {
    Positions positions;
    for (const auto& spec : specs) positions.emplace(spec.name, positions.size());
    return positions;
  }
};

// kInvalidArgument, with a list of the inputs, if there is no such input.
Result<size_t> FindDense(const Schema& schema, const SchemaNames& names, std::string_view name);
Result<size_t> FindSparse(const Schema& schema, const SchemaNames& names, std::string_view name);

// kNotFound if there is no such output.
Result<size_t> FindOutput(const Schema& schema, const SchemaNames& names, std::string_view name);

// Ascending, distinct positions of the `wanted` names, a range of strings. Empty: all outputs.
template <class Wanted>
Result<std::vector<size_t>> FindOutputs(const Schema& schema, const SchemaNames& names,
                                        const Wanted& wanted) {
  std::vector<bool> is_wanted(schema.outputs.size(), wanted.empty());
  for (const auto& name : wanted) {
    ASSIGN_OR_RETURN(const size_t position, FindOutput(schema, names, name));
    is_wanted[position] = true;
  }
  std::vector<size_t> positions;
  for (size_t i = 0; i < is_wanted.size(); ++i) {
    if (is_wanted[i]) positions.push_back(i);
  }
  return positions;
}

}  // namespace embershard
