// What a fuzzer says of every input.

#ifndef EMBERSHARD_TESTS_FUZZ_EXPECT_H_
#define EMBERSHARD_TESTS_FUZZ_EXPECT_H_

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

#endif  // EMBERSHARD_TESTS_FUZZ_EXPECT_H_
