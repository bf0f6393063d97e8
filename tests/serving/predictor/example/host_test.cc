// The program of docs/cpp.md, built and run.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "package/package.h"
#include "testing/paths.h"

namespace embershard {
namespace {

const std::filesystem::path kGolden = testing::TestsFolder() / "golden/format_0/tiny/1";

struct Ran {
  int status = -1;
  std::string said;  // Standard output and standard error.
};

Ran RunHost(const std::string& arguments) {
  const std::string command = std::string(EMBERSHARD_EXAMPLE_HOST) + " " + arguments + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  Ran ran;
  char bytes[4096];
  while (const size_t count = std::fread(bytes, 1, sizeof(bytes), pipe)) {
    ran.said.append(bytes, count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ran.status = WEXITSTATUS(status);
  return ran;
}

// The lines `name value value ...` that it prints.
std::map<std::string, std::vector<float>> Outputs(const std::string& said) {
  std::map<std::string, std::vector<float>> outputs;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    for (float value = 0; words >> value;) outputs[name].push_back(value);
  }
  return outputs;
}

TEST(ExampleHost, GivesTheScoresOfThePackagesFirstSample) {
  const auto package = Package::Open(kGolden, {});
  ASSERT_TRUE(package.ok()) << package.status().message();
  const SampleRequest& sample = (*package)->samples()[0];

  const Ran ran = RunHost(kGolden.string());
  ASSERT_EQ(ran.status, 0) << ran.said;
  const auto outputs = Outputs(ran.said);
  const std::vector<OutputSpec>& specs = (*package)->schema().outputs;
  ASSERT_EQ(outputs.size(), specs.size()) << ran.said;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_TRUE(outputs.contains(specs[i].name)) << ran.said;
    const std::vector<float>& got = outputs.at(specs[i].name);
    ASSERT_EQ(got.size(), sample.outputs[i].size()) << ran.said;
    for (size_t j = 0; j < got.size(); ++j) EXPECT_NEAR(got[j], sample.outputs[i][j], 1e-6F);
  }
}

TEST(ExampleHost, SaysWhatIsWrongWithAPackage) {
  const Ran ran = RunHost("/no/such/package");
  EXPECT_EQ(ran.status, 1);
  EXPECT_NE(ran.said.find("/no/such/package"), std::string::npos) << ran.said;
}

TEST(ExampleHost, SaysHowItIsCalled) {
  const Ran ran = RunHost("");
  EXPECT_EQ(ran.status, 2);
  EXPECT_NE(ran.said.find("usage: "), std::string::npos) << ran.said;
}

}  // namespace
}  // namespace embershard
