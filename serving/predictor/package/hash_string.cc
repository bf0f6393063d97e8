#include "package/hash_string.h"

#include <xxhash.h>

namespace embershard {

int64_t HashString(std::string_view utf8) {
  return static_cast<int64_t>(XXH3_64bits(utf8.data(), utf8.size()));
}

}  // namespace embershard
