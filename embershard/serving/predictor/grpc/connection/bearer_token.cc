#include "grpc/connection/bearer_token.h"

#include <openssl/crypto.h>
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <sstream>
#include <utility>

#include "base/sha256.h"

namespace embershard::rpc {
namespace {

constexpr std::chrono::seconds kBetweenLooks{1};
constexpr size_t kTokenCharsMin = 16;
constexpr size_t kTokenCharsMax = 4096;
constexpr size_t kTokensMax = 8;
constexpr std::string_view kScheme = "Bearer ";
constexpr std::string_view kSpace = " \t\r\n";

// RFC 6750 allows these characters.
bool MayStandInToken(char character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
         (character >= '0' && character <= '9') ||
         std::string_view("-._~+/=").find(character) != std::string::npos;
}

std::string_view Stripped(std::string_view text) {
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace

Result<std::unique_ptr<BearerToken>> BearerToken::Open(
    const std::string& path, std::function<void(const std::string&)> report) {
  std::unique_ptr<BearerToken> token(new BearerToken(path, std::move(report)));
  Status status;
  {
    MutexLock lock(token->mutex_);
    status = token->Read();
  }
  if (!status.ok()) return status;
  return token;
}

BearerToken::BearerToken(std::string path, std::function<void(const std::string&)> report)
    : path_(std::move(path)), report_(std::move(report)) {}

Status BearerToken::Read() {
  stamp_ = FileStamp::Of(path_);
  ASSIGN_OR_RETURN(std::string text, ReadSmallFile(path_, 2 * kTokensMax * kTokenCharsMax));
  std::istringstream lines(std::move(text));
  std::vector<std::string> digests;
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string_view token = Stripped(line);
    if (token.empty()) continue;
    if (token.size() < kTokenCharsMin || token.size() > kTokenCharsMax ||
        !std::ranges::all_of(token, MayStandInToken)) {
      // The message does not quote the content, which is secret even if it is wrong.
      return InvalidArgument(
          path_, ": expected one token of 16 to 4096 letters, digits and -._~+/= in line ", number);
    }
    digests.push_back(Sha256Hex(token.data(), token.size()));
  }
  if (digests.empty() || digests.size() > kTokensMax) {
    return InvalidArgument(path_, ": expected 1 to ", kTokensMax, " tokens, one on each line, got ",
                           digests.size());
  }
  digests_ = std::move(digests);
  return {};
}

Status BearerToken::LookLocked() { return FileStamp::Of(path_) == stamp_ ? Status() : Read(); }

bool BearerToken::Accepts(std::string_view header, Clock::time_point now) {
  // The scheme is not secret, and its case does not matter.
  if (header.size() < kScheme.size() ||
      strncasecmp(header.data(), kScheme.data(), kScheme.size()) != 0) {
    return false;
  }
  const std::string_view shown = Stripped(header.substr(kScheme.size()));
  const std::string digest = Sha256Hex(shown.data(), shown.size());
  Status looked;
  bool is_token = false;
  {
    MutexLock lock(mutex_);
    if (now >= next_look_) {
      next_look_ = now + kBetweenLooks;
      looked = LookLocked();
    }
    for (const std::string& expected : digests_) {
      is_token |= CRYPTO_memcmp(digest.data(), expected.data(), expected.size()) == 0;
    }
  }
  // Without the lock, since a report may take long and every call comes here.
  if (!looked.ok() && report_) report_(looked.message() + "; the tokens before it hold on");
  return is_token;
}

}  // namespace embershard::rpc
