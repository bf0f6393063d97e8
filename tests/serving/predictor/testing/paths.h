// Folders that tests read from.

#pragma once

#include <filesystem>
#include <string>

namespace embershard::testing {

// tests/ of this checkout.
std::filesystem::path TestsFolder();

// The installed FBGEMM. Empty in sanitizer builds.
std::filesystem::path FbgemmFolder();

// The dense programs that make_test_program.py writes. Empty in sanitizer builds.
std::filesystem::path TestPrograms();

// The bytes of one of them.
std::string ReadTestProgram(const std::string& name);

}  // namespace embershard::testing
