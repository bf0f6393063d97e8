#include "base/text.h"

#include <gtest/gtest.h>

#include <string>

namespace embershard {
namespace {

TEST(CutUtf8, KeepsWhatFitsAndCutsBetweenCharacters) {
  EXPECT_EQ(CutUtf8("abc", 3), "abc");
  EXPECT_EQ(CutUtf8("abcd", 3), "abc");
  EXPECT_EQ(CutUtf8("aé", 3), "aé");  // é takes two bytes.
  EXPECT_EQ(CutUtf8("aé", 2), "a");
  EXPECT_EQ(CutUtf8("\xf0\x9f\x94\xa5!", 3), "");  // One character of four bytes.
  EXPECT_EQ(CutUtf8("", 0), "");
}

TEST(CutUtf8, EndsAlsoInWhatIsNoUtf8) { EXPECT_EQ(CutUtf8("\x80\x80\x80", 2), ""); }

TEST(PrintableAscii, MarksEveryOtherByte) {
  EXPECT_EQ(PrintableAscii("00-4bf9~ 1", 128), "00-4bf9~ 1");
  const std::string text("a\tb\nc\0d\x7f\x1b[31mé", 15);
  EXPECT_EQ(PrintableAscii(text, 128), "a?b?c?d??[31m??");
}

TEST(PrintableAscii, CutsAtTheLimit) {
  EXPECT_EQ(PrintableAscii(std::string(129, 'x'), 128), std::string(128, 'x'));
  EXPECT_EQ(PrintableAscii(std::string(128, 'x'), 128), std::string(128, 'x'));
  EXPECT_EQ(PrintableAscii("x", 0), "");
}

}  // namespace
}  // namespace embershard
