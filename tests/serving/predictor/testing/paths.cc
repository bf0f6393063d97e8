// The only file of the tests that is compiled with absolute paths: what the compiler cache holds of
// the others serves every checkout.

#include "testing/paths.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace embershard::testing {
namespace {

// A test program that runs on another machine than the one it was built on gets its folders from
// the environment.
const char* FromEnvironment(const char* name, const char* otherwise) {
  const char* folder = std::getenv(name);
  return folder != nullptr ? folder : otherwise;
}

}  // namespace

std::filesystem::path TestsFolder() { return EMBERSHARD_TESTS_FOLDER; }

std::filesystem::path FbgemmFolder() {
  return FromEnvironment("EMBERSHARD_FBGEMM", EMBERSHARD_FBGEMM_FOLDER);
}

std::filesystem::path TestPrograms() {
  return FromEnvironment("EMBERSHARD_PROGRAMS", EMBERSHARD_TEST_PROGRAMS);
}

std::string ReadTestProgram(const std::string& name) {
  std::ifstream file(TestPrograms() / (name + ".pt"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace embershard::testing
