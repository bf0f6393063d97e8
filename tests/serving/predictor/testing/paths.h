// Folders that tests read from.

#ifndef EMBERSHARD_TESTS_TESTING_PATHS_H_
#define EMBERSHARD_TESTS_TESTING_PATHS_H_

#include <filesystem>

namespace embershard::testing {

// tests/ of this checkout.
std::filesystem::path TestsFolder();

// The installed FBGEMM. Empty in sanitizer builds.
std::filesystem::path FbgemmFolder();

// The dense programs that make_test_program.py writes. Empty in sanitizer builds.
std::filesystem::path TestPrograms();

}  // namespace embershard::testing

#endif  // EMBERSHARD_TESTS_TESTING_PATHS_H_
