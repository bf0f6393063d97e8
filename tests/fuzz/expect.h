// What a fuzzer says of every input.

#pragma once

#include <cstdio>
#include <cstdlib>

namespace embershard::fuzz {

// Ends the program, and so makes a finding of the input, unless `holds`.
inline void Expect(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", claim);
  std::abort();
}

}  // namespace embershard::fuzz
