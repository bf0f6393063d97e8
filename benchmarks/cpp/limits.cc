// What the cores and the memory of this machine can do at best, as a side of a comparison:
//
//   limits <threads> stream                 GB read from memory in order
//   limits <threads> gather <codes> <rows>  rows drawn at random from so many, each of a 4-byte
//                                           header and 32, 64 or 128 int8 codes; dequantized and
//                                           summed, 20 a bag
//   limits <threads> touch <codes> <rows>   the same rows, a word read of each of their lines
//   limits <threads> multiply_add           float32 operations in registers, two a multiply-add
//
// Compiled for the processor that builds it (EMBERSHARD_LIMITS_ARCH).

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/cpp/blocks.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr size_t kLanes = 16;
#elif defined(__AVX2__)
constexpr size_t kLanes = 8;
#else
constexpr size_t kLanes = 4;
#endif

using Floats [[gnu::vector_size(kLanes * 4)]] = float;
using Integers [[gnu::vector_size(kLanes * 4)]] = int32_t;

constexpr size_t kStreamBytes = size_t{1} << 30;
constexpr size_t kBagRows = 20;
constexpr size_t kRowsDrawn = kBagRows * (size_t{1} << 14);  // By each thread.
constexpr size_t kRowsAhead = 16;                            // Prefetched.
constexpr size_t kHeaderBytes = 4;
constexpr size_t kLineBytes = 64;

// Does some of the work of a thread and returns its units.
using Run = std::function<double(size_t thread)>;

// The compiler must take `value` for read.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// In huge pages where the system gives them, every byte 1. Never freed.
std::span<std::byte> Memory(size_t bytes) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    std::cerr << "limits: no memory for " << bytes << " bytes\n";
    std::exit(1);
  }
  madvise(start, bytes, MADV_HUGEPAGE);
  std::memset(start, 1, bytes);
  return {static_cast<std::byte*>(start), bytes};
}

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

// Scale and bias are bfloat16, which every processor widens with a shift.
float Widened(uint16_t value) { return std::bit_cast<float>(uint32_t{value} << 16); }

Floats WidenedCodes(const std::byte* codes) {
#if defined(__AVX512F__)
  const __m128i loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(loaded));
#elif defined(__AVX2__)
  const __m128i loaded = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(loaded));
#else
  Floats values;
  for (size_t i = 0; i < kLanes; ++i) values[i] = static_cast<float>(codes[i]);
  return values;
#endif
}

// Millions of rows.
template <size_t kCodes>
double SumBags(const std::byte* table, std::span<const uint32_t> rows) {
  constexpr size_t kRowBytes = kHeaderBytes + kCodes;
  constexpr size_t kVectors = std::min<size_t>(kCodes / kLanes, 8);  // Summed in registers at once.
  for (size_t bag = 0; bag + kBagRows <= rows.size(); bag += kBagRows) {
    for (size_t first = 0; first < kCodes; first += kVectors * kLanes) {
      Floats sums[kVectors] = {};
      float biases = 0;
      for (size_t i = bag; i < bag + kBagRows; ++i) {
        if (first == 0) {
          const std::byte* ahead =
              table + size_t{rows[std::min(i + kRowsAhead, rows.size() - 1)]} * kRowBytes;
          for (size_t at = 0; at < kRowBytes; at += kLineBytes) __builtin_prefetch(ahead + at);
          __builtin_prefetch(ahead + kRowBytes - 1);
        }
        const std::byte* row = table + size_t{rows[i]} * kRowBytes;
        uint16_t header[2];
        std::memcpy(header, row, sizeof(header));
        const float scale = Widened(header[0]);
        biases += Widened(header[1]);
        for (size_t v = 0; v < kVectors; ++v) {
          sums[v] += WidenedCodes(row + kHeaderBytes + first + v * kLanes) * scale;
        }
      }
      for (Floats& sum : sums) sum += biases;
      Keep(sums);
    }
  }
  return 1e-6 * static_cast<double>(rows.size());
}

// Millions of rows, of which the lines are asked for as far ahead as our kernels do, and read.
double Touch(const std::byte* table, std::span<const uint32_t> rows, size_t row_bytes) {
  constexpr size_t kAhead = 64;
  uint32_t sum = 0;
  const auto read = [&](const std::byte* at) {
    uint32_t word;
    std::memcpy(&word, at, sizeof(word));
    sum += word;
  };
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::byte* ahead =
        table + size_t{rows[std::min(i + kAhead, rows.size() - 1)]} * row_bytes;
    const std::byte* row = table + size_t{rows[i]} * row_bytes;
    for (size_t at = 0; at < row_bytes - kHeaderBytes; at += kLineBytes) {
      __builtin_prefetch(ahead + at);
      read(row + at);
    }
    __builtin_prefetch(ahead + row_bytes - 1);
    read(row + row_bytes - kHeaderBytes);
  }
  Keep(sum);
  return 1e-6 * static_cast<double>(rows.size());
}

// GFLOP, in enough chains that no multiply-add waits for the one before it.
double MultiplyAdd(size_t) {
  constexpr size_t kChains = 12, kSteps = size_t{1} << 18;
  Floats sums[kChains] = {};
  for (Floats& sum : sums) asm volatile("" : "+x"(sum));  // Else equal chains become one.
  for (size_t step = 0; step < kSteps; ++step) {
    for (Floats& sum : sums) sum = sum * 0.999F + 1e-3F;
  }
  Keep(sums);
  return 1e-9 * double{kSteps} * kChains * kLanes * 2;
}

Run Stream(size_t threads) {
  std::vector<std::span<std::byte>> memories;
  for (size_t i = 0; i < threads; ++i) memories.push_back(Memory(kStreamBytes));
  return [memories](size_t thread) { return ReadAll(memories[thread]); };
}

Run Gather(size_t threads, size_t codes, size_t rows, bool touch) {
  const std::byte* table = Memory(rows * (kHeaderBytes + codes)).data();
  std::mt19937_64 random(1);
  std::uniform_int_distribution<uint32_t> draw(0, static_cast<uint32_t>(rows - 1));
  std::vector<std::vector<uint32_t>> drawn(threads, std::vector<uint32_t>(kRowsDrawn));
  for (auto& of_thread : drawn) {
    for (uint32_t& row : of_thread) row = draw(random);
  }
  if (touch) {
    return [=](size_t thread) { return Touch(table, drawn[thread], kHeaderBytes + codes); };
  }
  auto* sum = codes == 32 ? SumBags<32> : codes == 64 ? SumBags<64> : SumBags<128>;
  return [table, drawn, sum](size_t thread) { return sum(table, drawn[thread]); };
}

}  // namespace

int main(int argc, char** argv) {
  using embershard::benchmarks::AnswerBlocks;
  const std::vector<std::string> words(argv + 1, argv + argc);
  const size_t threads = words.empty() ? 0 : std::strtoull(words[0].c_str(), nullptr, 10);
  if (threads > 0 && words.size() == 2 && words[1] == "stream") {
    AnswerBlocks("gb", threads, Stream(threads));
  } else if (threads > 0 && words.size() == 2 && words[1] == "multiply_add") {
    AnswerBlocks("gflop", threads, MultiplyAdd);
  } else if (threads > 0 && words.size() == 4 && (words[1] == "gather" || words[1] == "touch")) {
    const size_t codes = std::strtoull(words[2].c_str(), nullptr, 10);
    const size_t rows = std::strtoull(words[3].c_str(), nullptr, 10);
    AnswerBlocks("million_rows", threads, Gather(threads, codes, rows, words[1] == "touch"));
  } else {
    std::cerr << "usage: limits THREADS stream | gather|touch 32|64|128 ROWS | multiply_add\n";
    return 2;
  }
}
