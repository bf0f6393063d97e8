#include "grpc/connection/bearer_token.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace embershard::rpc {
namespace {

using std::chrono::milliseconds;

constexpr char kToken[] = "one-token_of.a~test+01/==";
constexpr char kOther[] = "another-token-of-a-test";

class BearerTokenTest : public ::testing::Test {
 protected:
  BearerTokenTest() { Write(kToken); }
  ~BearerTokenTest() override { std::filesystem::remove(path_); }

  // Replaces the file, as a rotation does.
  void Write(const std::string& text) {
    const std::string fresh = path_ + ".new";
    std::ofstream(fresh) << text << '\n';
    std::filesystem::rename(fresh, path_);
  }

  std::unique_ptr<BearerToken> Open() {
    auto token =
        BearerToken::Open(path_, [this](const std::string& said) { said_.push_back(said); });
    EXPECT_TRUE(token.ok()) << token.status().message();
    return token.ok() ? std::move(*token) : nullptr;
  }

  static std::string Header(const std::string& token) { return "Bearer " + token; }

  const std::string path_ = testing::TempDir() + "bearer_token_test";
  const Clock::time_point now_ = Clock::now();
  std::vector<std::string> said_;
};

TEST_F(BearerTokenTest, IsRereadOnceASecond) {
  const auto token = Open();
  ASSERT_TRUE(token->Accepts(Header(kToken), now_));
  Write(kOther);
  EXPECT_TRUE(token->Accepts(Header(kToken), now_ + milliseconds(999)));
  EXPECT_FALSE(token->Accepts(Header(kOther), now_ + milliseconds(999)));
  EXPECT_TRUE(token->Accepts(Header(kOther), now_ + milliseconds(1000)));
  EXPECT_FALSE(token->Accepts(Header(kToken), now_ + milliseconds(1001)));
  EXPECT_TRUE(said_.empty());
}

TEST_F(BearerTokenTest, AFileMayHoldSeveralOnALineEach) {
  Write(std::string(kToken) + "\n\n " + kOther + "\r");
  const auto token = Open();
  EXPECT_TRUE(token->Accepts(Header(kToken), now_));
  EXPECT_TRUE(token->Accepts(Header(kOther), now_));
  EXPECT_FALSE(token->Accepts(Header(std::string(kToken) + "\n" + kOther), now_));
  EXPECT_FALSE(token->Accepts(Header(""), now_));
}

TEST_F(BearerTokenTest, AFileThatIsWrongNamesTheLineAndNotWhatIsInIt) {
  const std::string line = std::string(kToken) + '\n';
  const std::pair<std::string, std::string> cases[] = {
      {line + "\nshort-one", "one token of 16 to 4096 letters, digits and -._~+/= in line 3"},
      {"\n", "1 to 8 tokens, one on each line, got 0"},
      {line + line + line + line + line + line + line + line + line,
       "1 to 8 tokens, one on each line, got 9"}};
  for (const auto& [text, expected] : cases) {
    Write(text);
    EXPECT_EQ(BearerToken::Open(path_, {}).status().message(), path_ + ": expected " + expected);
  }
}

TEST_F(BearerTokenTest, AFileThatIsGoneIsSaidOnceAndChangesNothing) {
  const auto token = Open();
  std::filesystem::remove(path_);
  for (int second = 0; second < 3; ++second) {
    EXPECT_TRUE(token->Accepts(Header(kToken), now_ + std::chrono::seconds(second)));
  }
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_EQ(said_[0], path_ + ": No such file or directory; the tokens before it hold on");
}

TEST_F(BearerTokenTest, ReportsWithoutALock) {
  std::unique_ptr<BearerToken> token;
  int reports = 0;
  auto opened = BearerToken::Open(path_, [&](const std::string&) {
    ++reports;
    EXPECT_TRUE(token->Accepts(Header(kToken), now_));  // Would wait for a lock for ever.
  });
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  token = std::move(*opened);
  std::filesystem::remove(path_);
  EXPECT_TRUE(token->Accepts(Header(kToken), now_));
  EXPECT_EQ(reports, 1);
}

TEST_F(BearerTokenTest, TakesTheWholeTokenAndNothingElse) {
  const auto token = Open();
  const std::string whole = kToken;
  EXPECT_TRUE(token->Accepts("bearer  " + whole + " ", now_));
  for (const std::string& header :
       {std::string(), std::string("Bearer"), std::string("Bearer "), whole, Header(whole + "x"),
        Header(whole.substr(1)), "Basic " + whole, Header(whole + " " + whole)}) {
    EXPECT_FALSE(token->Accepts(header, now_)) << header;
  }
}

}  // namespace
}  // namespace embershard::rpc
