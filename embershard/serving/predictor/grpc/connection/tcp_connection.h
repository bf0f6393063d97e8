// What the system knows of a TCP connection, and its end. Free of gRPC.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/file.h"

namespace embershard::rpc {

// A descriptor and the socket behind it. Another owner may close the descriptor at any time, and
// its number may be another file's then.
struct SocketId {
  int descriptor = -1;
  dev_t device = 0;
  ino_t inode = 0;

  // Nothing is open there: inode 0, which no socket has.
  static SocketId Of(int descriptor);

  bool IsOpen() const;

  // A second descriptor of the socket; not open if the socket has been closed.
  File Duplicate() const;
};

// Both empty if the connection is gone.
struct Peer {
  std::string name;     // As gRPC has it: "ipv4:127.0.0.1:50051", "ipv6:[::1]:50051".
  std::string network;  // Of one client: its address; of IPv6 the first 64 bits.
};

// IPv4 at a port of IPv6 is IPv4.
Peer PeerOf(int descriptor);

// Bytes that the peer has sent, read or not.
uint64_t ReceivedBytes(int descriptor);

// Received bytes that nobody has read.
uint64_t UnreadBytes(int descriptor);

// Bytes written that the peer has not acknowledged.
uint64_t UnacknowledgedBytes(int descriptor);

// The peer has closed its end, or the connection has been reset.
bool IsClosedByPeer(int descriptor);

// Ends the connection with a TCP reset and drops what it received and nobody has read. Descriptors
// of it stay open: reading from them fails, and those that poll them wake.
void Reset(int descriptor);

}  // namespace embershard::rpc
