// Reads the parts of manifest.json, and checks each field by itself.

#pragma once

#include <string>
#include <vector>

#include "package/json.h"
#include "package/manifest.h"

namespace embershard {

inline constexpr int64_t kLengthMax = (int64_t{1} << 31) - 1;  // Maximum ids in one list.

// Called before checking the keys, because other versions may have other keys.
void CheckFormatVersion(const JsonValue& root);

std::string ReadPlainName(const JsonValue& value);
std::string ReadFilePath(const JsonValue& value);

TableSpec ReadTable(const JsonValue& value);

// Reads `inputs` and `outputs`. REQUIRES: `tables` has been read.
void ReadSchema(const JsonValue& inputs, const JsonValue& outputs,
                const std::vector<TableSpec>& tables, Schema* schema);

}  // namespace embershard
