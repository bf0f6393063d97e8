#ifndef EMBERSHARD_PACKAGE_HASH_STRING_H_
#define EMBERSHARD_PACKAGE_HASH_STRING_H_

#include <cstdint>
#include <string_view>

namespace embershard {

// The id that stands for a string: XXH3-64 of its UTF-8, as every client computes it.
int64_t HashString(std::string_view utf8);

}  // namespace embershard

#endif  // EMBERSHARD_PACKAGE_HASH_STRING_H_
