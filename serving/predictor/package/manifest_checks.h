// What the fields of a manifest must say about one another.

#pragma once

#include "package/json_value.h"
#include "package/manifest.h"

namespace embershard {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kManifestDigestFile = "manifest.sha256";

inline constexpr uint64_t kSamplesBytesMax = uint64_t{1} << 30;

// Distinct names; every file named by a field listed in `files`, and named once; none that is
// read whole larger than its kind may be.
// `root` is the document that `manifest` was read from.
void CheckManifest(const Manifest& manifest, const JsonValue& root);

}  // namespace embershard
