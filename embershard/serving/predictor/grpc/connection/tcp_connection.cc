#include "grpc/connection/tcp_connection.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>

namespace embershard::rpc {
namespace {

constexpr size_t kNetworkBytes =
    8;  // The part of an IPv6 address that identifies a client's network.

std::string AddressText(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, address, text, sizeof(text));
  return text;
}

Peer Ipv4Peer(const void* address, in_port_t port) {
  const std::string text = "ipv4:" + AddressText(AF_INET, address);
  return {.name = text + ":" + std::to_string(ntohs(port)), .network = text};
}

Peer Ipv6Peer(const in6_addr& address, in_port_t port) {
  in6_addr network = {};
  std::copy_n(address.s6_addr, kNetworkBytes, network.s6_addr);
  return {.name = "ipv6:[" + AddressText(AF_INET6, &address) + "]:" + std::to_string(ntohs(port)),
          .network = "ipv6:" + AddressText(AF_INET6, &network)};
}

}  // namespace

SocketId SocketId::Of(int descriptor) {
  struct stat file = {};
  if (fstat(descriptor, &file) != 0) return {.descriptor = descriptor};
  return {.descriptor = descriptor, .device = file.st_dev, .inode = file.st_ino};
}

bool SocketId::IsOpen() const {
  const SocketId now = Of(descriptor);
  return now.inode != 0 && now.inode == inode && now.device == device;
}

File SocketId::Duplicate() const {
  File second(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  const SocketId same = {.descriptor = second.descriptor(), .device = device, .inode = inode};
  return second.is_open() && same.IsOpen() ? std::move(second) : File();
}

Peer PeerOf(int descriptor) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return {};
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return Ipv4Peer(&ipv4.sin_addr, ipv4.sin_port);
  }
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  // The last four bytes of "::ffff:127.0.0.1".
  if (IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) {
    return Ipv4Peer(&ipv6.sin6_addr.s6_addr[12], ipv6.sin6_port);
  }
  return Ipv6Peer(ipv6.sin6_addr, ipv6.sin6_port);
}

uint64_t ReceivedBytes(int descriptor) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_received;
}

uint64_t UnreadBytes(int descriptor) {
  int unread = 0;
  return ioctl(descriptor, FIONREAD, &unread) == 0 ? static_cast<uint64_t>(unread) : 0;
}

uint64_t UnacknowledgedBytes(int descriptor) {
  int written = 0;
  return ioctl(descriptor, TIOCOUTQ, &written) == 0 ? static_cast<uint64_t>(written) : 0;
}

bool IsClosedByPeer(int descriptor) {
  pollfd polled = {.fd = descriptor, .events = POLLRDHUP, .revents = 0};
  return poll(&polled, 1, 0) > 0;
}

void Reset(int descriptor) {
  sockaddr none = {};
  none.sa_family = AF_UNSPEC;
  connect(descriptor, &none, sizeof(none));
}

}  // namespace embershard::rpc
