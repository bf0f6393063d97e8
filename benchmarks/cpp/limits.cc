// Measures the limits of this machine's cores and memory, as a side of a comparison:
//
//   limits <threads> stream         GB read from memory sequentially
//   limits <threads> multiply_add   float32 operations in registers, two per multiply-add
//   limits <threads> gather <codes> <rows>
//                                   random rows of 32, 64 or 128 codes that are summed, see
//                                   random_rows.h
//
// Compiled for the processor that builds it (EMBERSHARD_LIMITS_ARCH).

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/cpp/blocks.h"
#include "benchmarks/cpp/random_rows.h"

namespace embershard::benchmarks {
namespace {

using Run = std::function<double(size_t thread)>;

double ReadAll(std::span<const std::byte> memory) {
  constexpr size_t kStreams = 4;
  Integers sums[kStreams] = {};
  const auto* vectors = reinterpret_cast<const Integers*>(memory.data());
  for (size_t at = 0; at < memory.size() / sizeof(Integers); at += kStreams) {
    for (size_t i = 0; i < kStreams; ++i) sums[i] ^= vectors[at + i];
  }
  Keep(sums);
  return 1e-9 * static_cast<double>(memory.size());
}

// Returns GFLOP. Has enough independent chains that no multiply-add waits for the previous one.
double MultiplyAdd(size_t) {
  constexpr size_t kChains = 12, kSteps = size_t{1} << 18;
  Floats sums[kChains] = {};
  for (Floats& sum : sums) asm volatile("" : "+x"(sum));  // Or the compiler merges equal chains.
  for (size_t step = 0; step < kSteps; ++step) {
    for (Floats& sum : sums) sum = sum * 0.999F + 1e-3F;
  }
  Keep(sums);
  return 1e-9 * double{kSteps} * kChains * kLanes * 2;
}

Run Stream(size_t threads) {
  constexpr size_t kStreamBytes = size_t{1} << 30;
  std::vector<std::span<std::byte>> memories;
  for (size_t i = 0; i < threads; ++i) memories.push_back(HugeMemory(kStreamBytes));
  return [memories](size_t thread) { return ReadAll(memories[thread]); };
}

template <size_t kCodes>
Run Gather(size_t threads, size_t rows) {
  auto all = std::make_shared<RandomRows>(threads, kCodes, rows);
  return [all](size_t thread) { return SumFloats<kCodes>(*all, thread); };
}

// Empty if rows of this size are not compiled.
Run Gather(size_t threads, size_t codes, size_t rows) {
  if (codes == 32) return Gather<32>(threads, rows);
  if (codes == 64) return Gather<64>(threads, rows);
  if (codes == 128) return Gather<128>(threads, rows);
  return {};
}

int Main(const std::vector<std::string>& words) {
  const auto number = [&](size_t at) { return std::strtoull(words[at].c_str(), nullptr, 10); };
  const size_t threads = words.empty() ? 0 : number(0);
  if (threads > 0 && words.size() == 2 && words[1] == "stream") {
    AnswerBlocks("gb", threads, Stream(threads));
    return 0;
  }
  if (threads > 0 && words.size() == 2 && words[1] == "multiply_add") {
    AnswerBlocks("gflop", threads, MultiplyAdd);
    return 0;
  }
  if (threads > 0 && words.size() == 4 && words[1] == "gather" && number(3) > 0) {
    if (const Run run = Gather(threads, number(2), number(3))) {
      AnswerBlocks("million_rows", threads, run);
      return 0;
    }
  }
  std::cerr << "usage: limits THREADS stream | multiply_add | gather 32|64|128 ROWS\n";
  return 2;
}

}  // namespace
}  // namespace embershard::benchmarks

int main(int argc, char** argv) { return embershard::benchmarks::Main({argv + 1, argv + argc}); }
