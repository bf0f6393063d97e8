// A program as one side of a benchmark, over its standard input and output.

#ifndef EMBERSHARD_BENCHMARKS_CPP_SIDE_H_
#define EMBERSHARD_BENCHMARKS_CPP_SIDE_H_

#include <chrono>
#include <functional>
#include <iostream>
#include <limits>
#include <string>

namespace embershard {

// Writes `ready`, then answers each line `run SECONDS` with `UNITS SECONDS`, until the input ends.
// `run` does some of the work and returns how many units of it.
inline void AnswerBlocks(const std::function<double()>& run) {
  using Clock = std::chrono::steady_clock;
  std::cout.precision(std::numeric_limits<double>::max_digits10);
  std::cout << "ready" << std::endl;
  std::string word;
  double wanted = 0;
  while (std::cin >> word >> wanted) {
    const auto started = Clock::now();
    double units = 0, seconds = 0;
    while (seconds < wanted) {
      units += run();
      seconds = std::chrono::duration<double>(Clock::now() - started).count();
    }
    std::cout << units << ' ' << seconds << std::endl;
  }
}

}  // namespace embershard

#endif  // EMBERSHARD_BENCHMARKS_CPP_SIDE_H_
