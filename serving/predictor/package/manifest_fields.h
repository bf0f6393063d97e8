// Reads the parts of manifest.json, each field by itself, and checks what they say about one
// another.

#pragma once

#include <string>
#include <vector>

#include "package/json_value.h"
#include "package/manifest.h"

namespace embershard {

inline constexpr int64_t kRowsMax = int64_t{1} << 40;          // Of one table.
inline constexpr int64_t kLengthMax = (int64_t{1} << 31) - 1;  // Of one list of ids.

// Refuses another version than this reader's, before the keys are looked at: another
// version may have others.
void CheckFormatVersion(const JsonValue& root);

std::string ReadPlainName(const JsonValue& value);
std::string ReadFilePath(const JsonValue& value);
std::string ReadInputName(const JsonValue& value);
Scope ReadScope(const JsonValue& value);

TableSpec ReadTable(const JsonValue& value);

// Reads `inputs` and `outputs`. REQUIRES: `tables` has been read.
void ReadSchema(const JsonValue& inputs, const JsonValue& outputs,
                const std::vector<TableSpec>& tables, Schema* schema);

// Distinct names; every file named by a field listed in `files`, and named once; none that is
// read whole larger than its kind may be.
// `root` is the document that `manifest` was read from.
void CheckManifest(const Manifest& manifest, const JsonValue& root);

}  // namespace embershard
