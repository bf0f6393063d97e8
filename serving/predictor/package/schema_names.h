// Where the inputs and outputs of a schema stand, by name.

#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>

#include "package/manifest.h"

namespace embershard {

// Immutable: any thread may read. Its names lie in the schema, which must outlive it.
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

}  // namespace embershard
