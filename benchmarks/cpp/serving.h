// What the servers of the benchmarks have in common: how they say where they listen,
// and how they are ended.

#pragma once

#include <pthread.h>

#include <csignal>
#include <cstdio>

namespace embershard::benchmarks {

// SIGTERM and SIGINT, kept from every thread that begins later.
// REQUIRES: built before any thread is.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  // Says on standard output that a port of this machine is listened on, and returns when
  // one of the signals has come.
  void ServeUntilOne(int port) const {
    std::printf("serving on 127.0.0.1:%d\n", port);
    std::fflush(stdout);
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_;
};

}  // namespace embershard::benchmarks
