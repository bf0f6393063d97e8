// Signatures against the test vectors of RFC 8032, section 7.1.

#include "package/trusted_keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "testing/scratch_folder.h"

namespace embershard {
namespace {

namespace fs = std::filesystem;

std::string Pem(const char* key) {
  // The text begins with the SubjectPublicKeyInfo header of an Ed25519 key (RFC 8410).
  return std::string("-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA") + key +
         "\n-----END PUBLIC KEY-----\n";
}

std::string FromHex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// TEST 1 signs no bytes. TEST 2 signs one byte, 0x72.
const std::string kFirstKey = Pem("11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
const std::string kFirst = FromHex(
    "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b4"
    "6bd25bf5f0595bbe24655141438e7a100b");
const std::string kSecondKey = Pem("PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=");
const std::string kSecond = FromHex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d"
    "8c387b2eaeb4302aeeb00d291612bb0c00");

// A P-256 key, which is not an Ed25519 key.
constexpr char kOtherKind[] =
    "-----BEGIN PUBLIC KEY-----\n"
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpZP40Li/hp/m47n\n"
    "60p8D54WK84zV2sxXs7LtkBoN79R9Q==\n"
    "-----END PUBLIC KEY-----\n";

class TrustedKeysTest : public ::testing::Test {
 protected:
  std::string File(const std::string& text) {
    const fs::path path = folder_.path() / "trusted.pem";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  testing::ScratchFolder folder_;
};

TEST_F(TrustedKeysTest, TellWhatTheyHaveSigned) {
  const auto first = TrustedKeys::Read(File(kFirstKey));
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_TRUE((*first)->HaveSigned("", kFirst));
  EXPECT_FALSE((*first)->HaveSigned("\x72", kFirst));
  EXPECT_FALSE((*first)->HaveSigned("\x72", kSecond));
  EXPECT_FALSE((*first)->HaveSigned("", ""));
  EXPECT_FALSE((*first)->HaveSigned("", std::string(64, '\0')));
  for (size_t i = 0; i < kFirst.size(); ++i) {
    std::string changed = kFirst;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE((*first)->HaveSigned("", changed)) << i;
  }
}

TEST_F(TrustedKeysTest, AnyOfSeveralKeysWillDo) {
  const auto both = TrustedKeys::Read(File("since May:\n" + kFirstKey + kSecondKey));
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_TRUE((*both)->HaveSigned("", kFirst));
  EXPECT_TRUE((*both)->HaveSigned("\x72", kSecond));
  EXPECT_FALSE((*both)->HaveSigned("\x72", kFirst));
}

TEST_F(TrustedKeysTest, AFileWithoutAKeyOrWithOneOfAnotherKindIsRefused) {
  const std::string half = kFirstKey.substr(0, kFirstKey.size() / 2);
  for (const std::string& text : {std::string(), std::string("no key\n"), half, kFirstKey + half,
                                  std::string(kOtherKind), kFirstKey + kOtherKind}) {
    const auto keys = TrustedKeys::Read(File(text));
    EXPECT_EQ(keys.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(keys.status().message().ends_with(
        "trusted.pem: expected public keys in PEM, at least one, all Ed25519"))
        << keys.status().message();
  }
  EXPECT_EQ(TrustedKeys::Read(folder_.path() / "none").status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(TrustedKeysTest, APackageWithoutItsSignatureIsRefusedInASentence) {
  const auto keys = TrustedKeys::Read(File(kSecondKey));
  ASSERT_TRUE(keys.ok());
  const fs::path package = folder_.path() / "12";
  EXPECT_EQ(SignatureFile(package), folder_.path() / "12.sig");
  const auto sign = [&](const std::string& bytes) {
    std::ofstream(folder_.path() / "12.sig", std::ios::binary) << bytes;
    return CheckSignature(package, "\x72", **keys);
  };
  const std::string from = "by a key in " + (*keys)->path();
  const Status missing = CheckSignature(package, "\x72", **keys);
  EXPECT_EQ(missing.code(), StatusCode::kBadPackage);
  EXPECT_EQ(missing.message(), "12.sig: file: expected a signature " + from + ", got none");
  EXPECT_TRUE(sign(kSecond).ok());
  EXPECT_EQ(sign(kFirst).message(),
            "12.sig: signature: expected one of manifest.sha256 " + from + ", got another");
  EXPECT_EQ(sign("short").message(), "12.sig: bytes: expected 64, got 5");
  EXPECT_EQ(sign(kSecond + "x").message(), "12.sig: bytes: expected 64, got 65");
}

}  // namespace
}  // namespace embershard
