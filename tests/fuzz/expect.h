// Checks in fuzzers.

#pragma once

#include <cstdio>
#include <cstdlib>

namespace embershard::fuzz {

// Aborts unless `holds`, so that the fuzzer reports the input.
inline void Expect(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", claim);
  std::abort();
}

}  // namespace embershard::fuzz
