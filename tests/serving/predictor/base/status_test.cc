#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace embershard {
namespace {

Result<int> Half(int number) {
  if (number % 2 != 0) return InvalidArgument(number, " is odd");
  return number / 2;
}

Result<int> Quarter(int number) {
  ASSIGN_OR_RETURN(const int half, Half(number));
  int quarter = 0;
  ASSIGN_OR_RETURN(quarter, Half(half));
  return quarter;
}

Status CheckEven(int number) {
  RETURN_IF_ERROR(Half(number).status());
  return NotFound("the end");
}

TEST(Status, IsOkUntilItSaysWhyNot) {
  const Status ok;
  EXPECT_TRUE(ok.ok());
  EXPECT_EQ(ok.message(), "");
  const Status refused = InvalidArgument("num_examples: expected at least 1, got 0");
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refused.message(), "num_examples: expected at least 1, got 0");
}

TEST(Status, HelpersGiveTheCodeOfTheirName) {
  EXPECT_EQ(NotFound("").code(), StatusCode::kNotFound);
  EXPECT_EQ(BadPackage("").code(), StatusCode::kBadPackage);
  EXPECT_EQ(Internal("").code(), StatusCode::kInternal);
}

TEST(Status, EscapesControlCharactersOfItsMessage) {
  EXPECT_EQ(NotFound("model '\x1b[2J'").message(), "model '\\u001b[2J'");
  // Another status may quote it.
  const Status quoted = Internal(NotFound("a\nb").message() + "\n");
  EXPECT_EQ(quoted.message(), "a\\nb\\n");
}

TEST(Status, CutsALongMessage) {
  constexpr size_t kMost = 16 << 10;
  EXPECT_EQ(NotFound(std::string(kMost, 'x')).message(), std::string(kMost, 'x'));
  EXPECT_EQ(NotFound(std::string(kMost + 1, 'x')).message(), std::string(kMost, 'x') + "...");
}

TEST(Result, HoldsAValueThatCanOnlyMove) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.status().ok());
  const std::unique_ptr<int> value = std::move(*result);
  EXPECT_EQ(*value, 7);
}

TEST(Result, HoldsTheReasonWhyThereIsNoValue) {
  const Result<int> result = NotFound("no such plan");
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "no such plan");
}

TEST(Result, IsAssignedOrItsStatusReturned) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(3).status().message(), "3 is odd");
  EXPECT_EQ(Quarter(6).status().message(), "3 is odd");
  EXPECT_EQ(Quarter(6).status().code(), StatusCode::kInvalidArgument);
}

TEST(Status, IsReturnedIfItIsAnError) {
  EXPECT_EQ(CheckEven(2).message(), "the end");
  EXPECT_EQ(CheckEven(5).message(), "5 is odd");
}

}  // namespace
}  // namespace embershard
