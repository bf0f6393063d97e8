// What is answered where memory has run out.

#ifndef EMBERSHARD_BASE_OUT_OF_MEMORY_H_
#define EMBERSHARD_BASE_OUT_OF_MEMORY_H_

#include "base/status.h"

namespace embershard {

// So short that it lies in its string, and takes no memory.
inline Status OutOfMemory() {
  return {StatusCode::kInternal, "out of memory", StatusReason::kOutOfMemory};
}

}  // namespace embershard

#endif  // EMBERSHARD_BASE_OUT_OF_MEMORY_H_
