#include "base/sha256.h"

#include <gtest/gtest.h>

namespace embershard {
namespace {

// Expected digests: FIPS 180-4, examples; the last one is of 1,000,000 times 'a'.
TEST(Sha256, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(Sha256Hex("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc", 3),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, IsTheSameForBytesInChunks) {
  Sha256 sha256;
  const std::string piece(999, 'a');
  for (int i = 0; i < 1001; ++i) sha256.Update(piece.data(), piece.size());
  sha256.Update("a", 1);
  EXPECT_EQ(sha256.HexDigest(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace embershard
