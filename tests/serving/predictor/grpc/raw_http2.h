// HTTP/2 by hand, for what a client of gRPC would never send.

#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace embershard::rpc {

// Types of HTTP/2 frames.
inline constexpr char kData = 0;
inline constexpr char kHeaders = 1;
inline constexpr char kRstStream = 3;
inline constexpr char kSettings = 4;
inline constexpr char kPing = 6;
inline constexpr char kGoAway = 7;

// A connection without gRPC on this side.
class Socket {
 public:
  explicit Socket(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    EXPECT_GE(socket_, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(socket_); }

  void Send(const std::string& bytes) {
    // The server may have hung up first: that is an answer too.
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(sent != 0 || bytes.empty());
  }

  // True if the server has ended the stream or hung up. Does not wait.
  bool Ended() { return HasHungUp() || Has(kRstStream); }

  // True if a frame of that type has arrived. Does not wait.
  bool Got(char type) { return HasHungUp() || Has(type); }

  // All bytes that have arrived. Does not wait.
  const std::string& received() {
    HasHungUp();
    return received_;
  }

  // Reads what there is.
  bool HasHungUp() {
    char bytes[4096];
    ssize_t size;
    while ((size = recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
      received_.append(bytes, static_cast<size_t>(size));
    }
    return size == 0;
  }

 private:
  bool Has(char type) const {
    constexpr size_t kHeader = 9;  // Three bytes of size, the type, flags and stream.
    for (size_t frame = 0; frame + kHeader <= received_.size();) {
      if (received_[frame + 3] == type) return true;
      const auto byte = [&](size_t i) { return static_cast<unsigned char>(received_[frame + i]); };
      frame += kHeader + (size_t{byte(0)} << 16) + (size_t{byte(1)} << 8) + byte(2);
    }
    return false;
  }

  const int socket_;
  std::string received_;
};

inline std::string Frame(char type, char flags, char stream, const std::string& payload) {
  const size_t size = payload.size();
  return std::string({static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                      static_cast<char>(size), type, flags, 0, 0, 0, stream}) +
         payload;
}

inline constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline const std::string kHello = kPreface + Frame(kSettings, 0, 0, "");  // Begins a connection.

// A call without its message.
inline std::string BeginningOfACall(char stream, const std::string& path) {
  const auto header = [](const std::string& name, const std::string& value) {
    return std::string({0, static_cast<char>(name.size())}) + name +
           std::string({static_cast<char>(value.size())}) + value;
  };
  constexpr char kEndOfHeaders = 4;
  return Frame(kHeaders, kEndOfHeaders, stream,
               header(":method", "POST") + header(":scheme", "http") + header(":path", path) +
                   header(":authority", "x") + header("te", "trailers") +
                   header("content-type", "application/grpc"));
}

inline constexpr char kPredict[] = "/embershard.v1.Predictor/Predict";

}  // namespace embershard::rpc
