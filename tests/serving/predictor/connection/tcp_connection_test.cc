#include "grpc/connection/tcp_connection.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <utility>

#include "connection/connected.h"

namespace embershard::rpc {
namespace {

TEST(TcpConnection, ResetDropsUnreadBytesAndWakesWhoPolls) {
  const Connected connection = NewConnection();
  Send(connection, 1000);
  Reset(connection.server.descriptor());
  pollfd polled = {.fd = connection.server.descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&polled, 1, 0), 1);
  EXPECT_NE(polled.revents & POLLHUP, 0);
  char byte;
  EXPECT_EQ(recv(connection.server.descriptor(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_EQ(recv(connection.client.descriptor(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

TEST(TcpConnection, ResetEndsTheSocketOfEachDuplicate) {
  const Connected connection = NewConnection();
  const SocketId id = SocketId::Of(connection.server.descriptor());
  Reset(id.Duplicate().descriptor());
  EXPECT_TRUE(id.IsOpen());
  EXPECT_TRUE(IsClosedByPeer(connection.server.descriptor()));
  EXPECT_TRUE(IsClosed(connection));
}

TEST(TcpConnection, TellsAReusedDescriptorFromItsSocket) {
  Connected first = NewConnection();
  const SocketId id = SocketId::Of(first.server.descriptor());
  EXPECT_TRUE(id.Duplicate().is_open());
  first.server = File();
  EXPECT_FALSE(id.IsOpen());
  EXPECT_FALSE(id.Duplicate().is_open());
  const File other = NewSocket();
  const File reused(dup2(other.descriptor(), id.descriptor));
  ASSERT_TRUE(reused.is_open());
  EXPECT_FALSE(id.IsOpen());
  EXPECT_FALSE(id.Duplicate().is_open());
}

TEST(TcpConnection, CountsBytesReceivedAndThoseThatNobodyHasRead) {
  const Connected connection = NewConnection();
  const int descriptor = connection.server.descriptor();
  EXPECT_EQ(ReceivedBytes(descriptor), 0U);
  EXPECT_EQ(UnreadBytes(descriptor), 0U);
  Send(connection, 1000);
  char bytes[400];
  EXPECT_EQ(recv(descriptor, bytes, sizeof(bytes), 0), 400);
  EXPECT_EQ(ReceivedBytes(descriptor), 1000U);
  EXPECT_EQ(UnreadBytes(descriptor), 600U);
}

TEST(TcpConnection, KnowsThatThePeerHasClosed) {
  Connected connection = NewConnection();
  EXPECT_FALSE(IsClosedByPeer(connection.server.descriptor()));
  Send(connection, 1);
  connection.client = File();
  EXPECT_TRUE(IsClosedByPeer(connection.server.descriptor()));
}

TEST(TcpConnection, NamesPeersAsGrpcDoes) {
  for (const int family : {AF_INET, AF_INET6}) {  // The second: IPv4 at a port of IPv6.
    const Connected connection = NewConnection(INADDR_LOOPBACK, family);
    const Peer peer = PeerOf(connection.server.descriptor());
    EXPECT_EQ(peer.name, PeerName(connection));
    EXPECT_EQ(peer.network, "ipv4:127.0.0.1");
  }
  EXPECT_EQ(PeerOf(-1).name, "");
}

TEST(TcpConnection, TheNetworkOfIpv6IsItsFirst64Bits) {
  const File listening(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (bind(listening.descriptor(), any, size) != 0) GTEST_SKIP() << "no IPv6 here";
  ASSERT_EQ(listen(listening.descriptor(), 1), 0);
  ASSERT_EQ(getsockname(listening.descriptor(), any, &size), 0);
  const File client(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.descriptor(), any, size), 0);
  const File server(accept(listening.descriptor(), nullptr, nullptr));
  ASSERT_EQ(getsockname(client.descriptor(), any, &size), 0);
  const Peer peer = PeerOf(server.descriptor());
  EXPECT_EQ(peer.name, "ipv6:[::1]:" + std::to_string(ntohs(address.sin6_port)));
  EXPECT_EQ(peer.network, "ipv6:::");
}

}  // namespace
}  // namespace embershard::rpc
