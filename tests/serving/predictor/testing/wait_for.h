// Waiting for what another thread does.

#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace embershard {

// Returns once `condition` is true, or false after `timeout`: the test is then to fail, not
// to hang.
[[nodiscard]] inline bool WaitFor(const std::function<bool()>& condition,
                                  std::chrono::seconds timeout = std::chrono::seconds(100)) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    // Asleep: what it waits for may be a thread of idle priority.
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace embershard
