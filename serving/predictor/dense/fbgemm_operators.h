// FBGEMM's operators, for dense programs that use some. Lookups need none.

#pragma once

#include <filesystem>

#include "base/status.h"

namespace embershard {

// Loads FBGEMM's operator libraries from `folder` (the installed fbgemm_gpu) into
// the process. Safe to call more than once, from any thread.
Status LoadFbgemmOperators(const std::filesystem::path& folder);

}  // namespace embershard
