// The time at which the tests of this folder begin.

#pragma once

#include <chrono>

#include "base/clock.h"

namespace embershard {

inline constexpr Clock::time_point kStart{std::chrono::hours(1)};

}  // namespace embershard
