// Sums random rows, 20 in each bag, as an upper bound for the speed of lookups. Each thread has its
// own 32 batches of 512 bags.
//
// row   2 bytes scale (bfloat16) | 2 bytes bias (bfloat16) | int8 codes

#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <span>
#include <utility>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace embershard::benchmarks {

#if defined(__AVX512F__)
constexpr size_t kLanes = 16;
#elif defined(__AVX2__)
constexpr size_t kLanes = 8;
#else
constexpr size_t kLanes = 4;
#endif

using Floats [[gnu::vector_size(kLanes * 4)]] = float;
using Integers [[gnu::vector_size(kLanes * 4)]] = int32_t;

// Makes the compiler assume that `value` is read.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// Allocates memory with all bytes 1, in huge pages if possible. It is never freed.
inline std::span<std::byte> HugeMemory(size_t bytes) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    std::cerr << "limits: expected " << bytes << " bytes of memory, got none\n";
    std::exit(1);
  }
  madvise(start, bytes, MADV_HUGEPAGE);
  std::memset(start, 1, bytes);
  return {static_cast<std::byte*>(start), bytes};
}

inline Floats WidenedCodes(const std::byte* codes) {
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

constexpr size_t kBagRows = 20;
constexpr size_t kBags = 512;
constexpr size_t kRowsDrawn = kBagRows * kBags * 32;  // For each thread.
constexpr size_t kAhead = 16;                         // Rows between prefetch and sum.
constexpr size_t kHeaderBytes = 4;
constexpr size_t kLineBytes = 64;

class RandomRows {
 public:
  RandomRows(size_t threads, size_t codes, size_t rows)
      : codes_(codes),
        row_bytes_(kHeaderBytes + codes),
        rows_(HugeMemory(rows * row_bytes_).data()),
        drawn_(threads),
        sums_(threads, std::vector<float>(kBags * codes)) {
    std::mt19937_64 random(1);
    std::uniform_int_distribution<uint32_t> draw(0, static_cast<uint32_t>(rows - 1));
    for (auto& of_thread : drawn_) {
      for (size_t i = 0; i < kRowsDrawn + kAhead; ++i) of_thread.push_back(draw(random));
    }
  }

  // Calls bag(rows, sums, sums of the second next bag) for each bag. Returns millions of rows.
  template <class Bag>
  double ForBags(size_t thread, const Bag& bag) {
    const uint32_t* const rows = drawn_[thread].data();
    const auto sums = [&](size_t i) { return &sums_[thread][i % kBags * codes_]; };
    for (size_t i = 0; i < kRowsDrawn / kBagRows; ++i)
      bag(rows + i * kBagRows, sums(i), sums(i + 2));
    return 1e-6 * double{kRowsDrawn};
  }

  const std::byte* Header(uint32_t row) const { return rows_ + row * row_bytes_; }
  const std::byte* Codes(uint32_t row) const { return Header(row) + kHeaderBytes; }

  template <size_t kCodes>
  void Fetch(uint32_t row) const {
    __builtin_prefetch(Header(row));
    for (size_t at = kLineBytes; at < kCodes; at += kLineBytes) {
      __builtin_prefetch(Codes(row) + at);
    }
    __builtin_prefetch(Codes(row) + kCodes - 1);
  }

 private:
  const size_t codes_, row_bytes_;
  const std::byte* const rows_;
  std::vector<std::vector<uint32_t>> drawn_;
  std::vector<std::vector<float>> sums_;  // [bags, codes]
};

template <size_t kCodes>
void FetchSums(const float* sums) {
  for (size_t at = 0; at < kCodes; at += kLineBytes / sizeof(float))
    __builtin_prefetch(sums + at, 1);
}

inline float Widened(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return std::bit_cast<float>(uint32_t{value} << 16);
}

template <size_t kCodes>
double SumFloats(RandomRows& all, size_t thread) {
  constexpr size_t kVectors = std::min<size_t>(kCodes / kLanes, 8);  // Summed in registers at once.
  return all.ForBags(thread, [&](const uint32_t* rows, float* out, const float* later) {
    FetchSums<kCodes>(later);
    for (size_t first = 0; first < kCodes; first += kVectors * kLanes) {
      Floats sums[kVectors] = {};
      float biases = 0;
      for (size_t i = 0; i < kBagRows; ++i) {
        if (first == 0) all.Fetch<kCodes>(rows[i + kAhead]);
        const float scale = Widened(all.Header(rows[i]));
        biases += Widened(all.Header(rows[i]) + 2);
        for (size_t v = 0; v < kVectors; ++v) {
          sums[v] += WidenedCodes(all.Codes(rows[i]) + first + v * kLanes) * scale;
        }
      }
      for (Floats& sum : sums) sum += biases;
      std::memcpy(out + first, sums, sizeof(sums));
    }
  });
}

}  // namespace embershard::benchmarks
