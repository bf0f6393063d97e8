// The only file of the tests that is compiled with absolute paths: what the compiler cache holds of
// the others serves every checkout.

#include "testing/paths.h"

namespace embershard::testing {

std::filesystem::path TestsFolder() { return EMBERSHARD_TESTS_FOLDER; }

std::filesystem::path FbgemmFolder() { return EMBERSHARD_FBGEMM_FOLDER; }

std::filesystem::path TestPrograms() { return EMBERSHARD_TEST_PROGRAMS; }

}  // namespace embershard::testing
