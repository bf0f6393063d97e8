#include "package/manifest_fields.h"

#include "package/names.h"

namespace embershard {
namespace {

constexpr int64_t kFormatVersion = 0;

}  // namespace

void CheckFormatVersion(const JsonValue& root) {
  if (root.Has("format_version")) root["format_version"].Integer(kFormatVersion, kFormatVersion);
}

std::string ReadPlainName(const JsonValue& value) {
  return value.TextThat(IsPlainName, "a name of letters, digits, '_', '.' and '-'");
}

std::string ReadFilePath(const JsonValue& value) {
  return value.TextThat(IsFilePath, "a path inside the package");
}

std::string ReadInputName(const JsonValue& value) {
  return value.TextThat(IsInputName, "1 .. 256 bytes without control characters");
}

Scope ReadScope(const JsonValue& value) {
  return value.Choice<Scope>({{"request", Scope::kRequest}, {"example", Scope::kExample}});
}

}  // namespace embershard
