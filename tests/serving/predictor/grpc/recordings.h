// Recordings, read as a test sees them; and a disk that is full.

#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <xxhash.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "embershard/v1/recording.pb.h"

namespace embershard::rpc {

inline std::chrono::system_clock::time_point At(int64_t unix_us) {
  return std::chrono::system_clock::time_point(std::chrono::microseconds(unix_us));
}

inline std::string Contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Recording {
  v1::RecordingHeader header;
  std::vector<v1::RecordedCall> calls;
};

// Reads a file that ends with a whole message.
inline Recording Read(const std::filesystem::path& path) {
  const std::string file = Contents(path);
  std::vector<std::string> messages;
  for (size_t at = 0; at < file.size();) {
    struct Frame {
      uint32_t size, check_of_size;
      uint64_t check;
    } frame;
    if (at + sizeof(frame) > file.size()) {
      ADD_FAILURE() << "torn at byte " << at;
      break;
    }
    std::memcpy(&frame, file.data() + at, sizeof(frame));
    messages.push_back(file.substr(at + sizeof(frame), frame.size));
    EXPECT_EQ(messages.back().size(), frame.size);
    EXPECT_EQ(frame.check_of_size, static_cast<uint32_t>(XXH3_64bits(&frame.size, 4)));
    EXPECT_EQ(frame.check, XXH3_64bits(messages.back().data(), frame.size));
    at += sizeof(frame) + frame.size;
  }
  Recording recording;
  if (messages.empty() || !recording.header.ParseFromString(messages[0])) {
    ADD_FAILURE() << "no header";
    return recording;
  }
  for (size_t i = 1; i < messages.size(); ++i) {
    EXPECT_TRUE(recording.calls.emplace_back().ParseFromString(messages[i]));
  }
  return recording;
}

// Files of this process may not grow over a size, as if the disk were full there.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    previous_handler_ = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = previous_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &previous_);
    signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_;
  sighandler_t previous_handler_;
};

}  // namespace embershard::rpc
