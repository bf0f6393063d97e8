// Reads the parts of manifest.json, each field by itself.

#pragma once

#include <string>
#include <vector>

#include "package/json.h"
#include "package/manifest.h"

namespace embershard {

inline constexpr int64_t kLengthMax = (int64_t{1} << 31) - 1;  // Of one list of ids.

// Refuses another version than this reader's, before the keys are looked at: another
// version may have others.
void CheckFormatVersion(const JsonValue& root);

std::string ReadPlainName(const JsonValue& value);
std::string ReadFilePath(const JsonValue& value);

TableSpec ReadTable(const JsonValue& value);

// Reads `inputs` and `outputs`. REQUIRES: `tables` has been read.
void ReadSchema(const JsonValue& inputs, const JsonValue& outputs,
                const std::vector<TableSpec>& tables, Schema* schema);

}  // namespace embershard
