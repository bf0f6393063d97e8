#include "registry/version_choice.h"

#include <gtest/gtest.h>

namespace embershard {
namespace {

using Versions = std::set<int64_t>;

VersionRule Rule(const char* text) {
  const auto rule = ParseVersionRule(text);
  EXPECT_TRUE(rule.ok()) << rule.status().message();
  return *rule;
}

Result<VersionChoice> Choose(const char* rule, const Labels& labels, const Versions& also = {}) {
  return ChooseVersions("ranker", Rule(rule), {1, 2, 5}, labels, also);
}

TEST(VersionChoice, TheHighestUnlessOneIsStable) {
  EXPECT_EQ(Choose("", {})->default_version, 5);
  EXPECT_EQ(Choose("", {})->versions, Versions{5});
  EXPECT_EQ(Choose("", {{"stable", 2}})->default_version, 2);
  EXPECT_EQ(Choose("", {{"canary", 2}})->default_version, 5);
}

TEST(VersionChoice, ACanaryOrShadowIsNotTheDefaultMerelyAsTheHighest) {
  EXPECT_EQ(Choose("", {{"canary", 5}})->default_version, 2);
  EXPECT_EQ(Choose("", {{"shadow", 5}})->default_version, 2);
  EXPECT_EQ(Choose("", {{"canary", 5}, {"shadow", 2}})->default_version, 1);
  EXPECT_EQ(Choose("", {{"canary", 5}})->versions, (Versions{2, 5}));
  EXPECT_EQ(Choose("", {{"canary", 5}, {"stable", 5}})->default_version, 5);
  EXPECT_EQ(Choose("latest", {{"canary", 5}})->default_version, 5);
}

TEST(VersionChoice, RefusesToGuessTheDefaultAmongCanaryAndShadow) {
  const auto choice =
      ChooseVersions("ranker", Rule(""), {7, 8}, {{"canary", 8}, {"shadow", 7}}, {});
  EXPECT_EQ(choice.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(
      choice.status().message(),
      "model 'ranker': every version is labelled canary or shadow: label one stable, or name the "
      "default with --version");
}

TEST(VersionChoice, ARuleThatIsGivenStands) {
  EXPECT_EQ(Choose("latest", {{"stable", 2}})->default_version, 5);
  EXPECT_EQ(Choose("1", {{"stable", 2}})->default_version, 1);
  EXPECT_EQ(Choose("canary", {{"canary", 2}})->default_version, 2);
}

TEST(VersionChoice, LabelledOnesAndThoseAskedForAreLoadedToo) {
  EXPECT_EQ(Choose("latest", {{"stable", 2}, {"shadow", 1}})->versions, (Versions{1, 2, 5}));
  EXPECT_EQ(Choose("", {}, {1, 7})->versions, (Versions{1, 5}));  // 7 is not there any more.
}

TEST(VersionChoice, WhatIsNotThereIsRefused) {
  EXPECT_EQ(Choose("3", {}).status().message(),
            "model 'ranker': version 3 is not in the repository, expected one of 1, 2, 5");
  EXPECT_EQ(Choose("canary", {}).status().message(),
            "model 'ranker': no version is labelled canary");
  EXPECT_EQ(Choose("", {{"stable", 4}}).status().message(),
            "model 'ranker': version 4, labelled stable, is not in the repository, expected one of "
            "1, 2, 5");
}

TEST(VersionChoice, ManyVersionsAreCountedInMessages) {
  std::vector<int64_t> there;
  for (int64_t version = 1; version <= 10; ++version) there.push_back(version);
  const auto refusal = [&] {
    return ChooseVersions("ranker", Rule("9999"), there, {}, {}).status().message();
  };
  const std::string begin =
      "model 'ranker': version 9999 is not in the repository, expected one of ";
  EXPECT_EQ(refusal(), begin + "1, 2, 3, 4, 5, 6, 7, 8, 9, 10");
  there.push_back(3000);
  EXPECT_EQ(refusal(), begin + "11 versions from 1 to 3000");
}

TEST(VersionChoice, ARuleIsLatestANumberOrALabel) {
  for (const char* text : {"0", "-1", "newest", "1.5", "99999999999999999999", " 1"}) {
    const auto rule = ParseVersionRule(text);
    EXPECT_EQ(rule.status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace embershard
