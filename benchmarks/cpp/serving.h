// The start message and the stop signals of the benchmarks' servers.

#pragma once

#include <pthread.h>

#include <csignal>
#include <cstdio>

namespace embershard::benchmarks {

// Blocks SIGTERM and SIGINT in this thread and in threads that it starts later.
// REQUIRES: constructed before other threads start.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

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
