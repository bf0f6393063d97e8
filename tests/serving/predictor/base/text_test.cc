#include "base/text.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace embershard {
namespace {

TEST(StrCat, JoinsTextsAndNumbers) {
  enum Unscoped { kTwo = 2 };
  EXPECT_EQ(StrCat("a", std::string("b"), std::string_view("c"), size_t{7}, -1, kTwo, 0.5),
            "abc7-120.500000");
}

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

TEST(EscapeControls, EscapesControlCharactersAsJsonDoes) {
  EXPECT_EQ(EscapeControls("model '\x1b[31m\n\t\r\x7f'"), "model '\\u001b[31m\\n\\t\\r\\u007f'");
  EXPECT_EQ(EscapeControls(std::string("\0", 1)), "\\u0000");
  // U+009B begins a terminal's control sequence in one character.
  EXPECT_EQ(EscapeControls("\xc2\x9b"
                           "2J"),
            "\\u009b2J");
}

TEST(EscapeControls, EscapesLineSeparatorsAndBidirectionalOverrides) {
  EXPECT_EQ(EscapeControls("a\u2028b\u202ec\u2066d\u2069"), "a\\u2028b\\u202ec\\u2066d\\u2069");
}

TEST(EscapeControls, KeepsEveryOtherCharacter) {
  for (const char* text : {"", "ranker ~", "\u00a0\u00e9", "\u2027\u202f\u2065\u206a\u20ac",
                           "\\u001b", "\xc2", "\xe2\x80", "\xff\x9b"}) {
    EXPECT_EQ(EscapeControls(text), text);
  }
}

}  // namespace
}  // namespace embershard
