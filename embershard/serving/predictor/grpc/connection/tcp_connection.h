#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/file.h"

namespace embershard::rpc {

// A descriptor and its socket. Another owner may close the descriptor at any time, after which its
// number may denote another file.
struct SocketId {
  int descriptor = -1;
  dev_t device = 0;
  ino_t inode = 0;

  // If nothing is open there, the inode is 0, which no socket has.
  static SocketId Of(int descriptor);

  bool IsOpen() const;

  // A second descriptor of the socket; not open if the socket was closed.
  File Duplicate() const;
};

// Both empty if the connection is gone.
struct Peer {
  std::string name;     // In gRPC's form: "ipv4:127.0.0.1:50051", "ipv6:[::1]:50051".
  std::string network;  // The client's IPv4 address, or the first 64 bits of its IPv6 address.
};

// IPv4 addresses mapped to IPv6 count as IPv4.
Peer PeerOf(int descriptor);

// Counts read and unread bytes.
uint64_t ReceivedBytes(int descriptor);

uint64_t UnreadBytes(int descriptor);

uint64_t UnacknowledgedBytes(int descriptor);

// True if the peer closed its end or the connection was reset.
bool IsClosedByPeer(int descriptor);

// Ends the connection with a TCP reset and drops unread bytes. Its descriptors stay open: reads
// fail, and threads that poll them wake.
void Reset(int descriptor);

}  // namespace embershard::rpc
