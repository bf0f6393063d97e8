#include "package/names.h"

#include <gtest/gtest.h>

#include <string>

namespace embershard {
namespace {

TEST(Names, PlainNamesBecomePartsOfPaths) {
  for (const char* name : {"a", "_", "0", "users", "A-b.c_9", "a..b"}) {
    EXPECT_TRUE(IsPlainName(name)) << name;
  }
  EXPECT_TRUE(IsPlainName(std::string(128, 'x')));
  for (const char* name : {"", ".", "..", ".hidden", "-a", "a/b", "a\\b", "a b", "é", "a\n"}) {
    EXPECT_FALSE(IsPlainName(name)) << name;
  }
  EXPECT_FALSE(IsPlainName(std::string(129, 'x')));
}

TEST(Names, FilePathsStayInsideThePackage) {
  for (const char* path : {"a", "tables/users/00000.safetensors", "1/2/3/4/5/6/7/8"}) {
    EXPECT_TRUE(IsFilePath(path)) << path;
  }
  for (const char* path : {"", "/", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a\\b", "C:/a",
                           "1/2/3/4/5/6/7/8/9"}) {
    EXPECT_FALSE(IsFilePath(path)) << path;
  }
}

TEST(Names, InputNamesAreTextThatCanBeShown) {
  for (const char* name : {"a", "user id", "naïve/😀", "../x"}) EXPECT_TRUE(IsInputName(name));
  EXPECT_TRUE(IsInputName(std::string(256, 'x')));
  EXPECT_FALSE(IsInputName(""));
  EXPECT_FALSE(IsInputName(std::string(257, 'x')));
  EXPECT_FALSE(IsInputName("a\nb"));
  EXPECT_FALSE(IsInputName("\x7F"));
  EXPECT_FALSE(IsInputName(std::string(1, '\0')));
}

TEST(Names, HexDigitsAreCountedAndLowerCase) {
  EXPECT_TRUE(IsHex("09af", 4));
  EXPECT_FALSE(IsHex("09af", 5));
  EXPECT_FALSE(IsHex("09aF", 4));
  EXPECT_FALSE(IsHex("09ag", 4));
}

}  // namespace
}  // namespace embershard
