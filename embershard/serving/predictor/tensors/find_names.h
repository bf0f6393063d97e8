// Names that a request gives, found in the schema or refused.

#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "package/manifest.h"

namespace embershard {

// Where the inputs and outputs of a schema stand, by name. Immutable: any thread may read. Its
// names lie in the schema, which must outlive it.
struct SchemaNames {
  using Positions = std::unordered_map<std::string_view, size_t>;

  explicit SchemaNames(const Schema& schema)
      : dense(Of(schema.dense)), sparse(Of(schema.sparse)), outputs(Of(schema.outputs)) {}

  const Positions dense;  // In Schema::dense, and so on.
  const Positions sparse;
  const Positions outputs;

 private:
  template <class Specs>
  static Positions Of(const Specs& specs) {
    Positions positions;
    for (const auto& spec : specs) positions.emplace(spec.name, positions.size());
    return positions;
  }
};

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
    ASSIGN_OR_RETURN(const size_t position, FindOutput(schema, names, name));
    found[position] = true;
  }
  std::vector<size_t> positions;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i]) positions.push_back(i);
  }
  return positions;
}

}  // namespace embershard
