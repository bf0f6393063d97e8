// The line protocol of benchmarks/child.py, for a program that is one side of a comparison.

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <iostream>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace embershard::benchmarks {

// Answers each line `run SECONDS` with the figure <unit>_per_second, summed over the threads, until
// the input ends. `run(thread)` does some of the work and returns the number of units.
inline void AnswerBlocks(const std::string& unit, size_t threads,
                         const std::function<double(size_t thread)>& run) {
  using Clock = std::chrono::steady_clock;
  std::cout.precision(std::numeric_limits<double>::max_digits10);
  std::cout << "ready" << std::endl;
  std::string word;
  double wanted = 0;
  while (std::cin >> word >> wanted) {
    std::vector<double> rates(threads);
    const auto work = [&](size_t thread) {
      const auto started = Clock::now();
      double units = 0, seconds = 0;
      while (seconds < wanted) {
        units += run(thread);
        seconds = std::chrono::duration<double>(Clock::now() - started).count();
      }
      rates[thread] = units / seconds;
    };
    {
      std::vector<std::jthread> others;
      for (size_t thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
      work(0);
    }
    std::cout << "{\"" << unit << "_per_second\": " << std::reduce(rates.begin(), rates.end())
              << '}' << std::endl;
  }
}

}  // namespace embershard::benchmarks
