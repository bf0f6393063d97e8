// Lookups through FBGEMM's quantized CPU kernel, one thread for each device of the
// plan. Torch-free header: callers need not know.

#ifndef EMBERSHARD_LOOKUP_FBGEMM_LOOKUP_H_
#define EMBERSHARD_LOOKUP_FBGEMM_LOOKUP_H_

#include <filesystem>
#include <memory>

#include "base/status.h"
#include "lookup/lookup.h"
#include "package/package.h"

namespace embershard {

// Loads FBGEMM's operator libraries from `folder` (the installed fbgemm_gpu) into
// the process. Safe to call more than once, from any thread.
Status LoadFbgemm(const std::filesystem::path& folder);

// `package` must outlive the lookup. REQUIRES: LoadFbgemm() succeeded before.
// kBadPackage where the plan holds what this lookup cannot place (it places whole
// tables, on cpu devices).
Result<std::unique_ptr<Lookup>> MakeFbgemmLookup(const Package& package);

}  // namespace embershard

#endif  // EMBERSHARD_LOOKUP_FBGEMM_LOOKUP_H_
