// Rows of tables drawn at random and summed, 20 a bag, with ever less done: what a lookup cannot
// pass. Each thread has four batches of its own: 512 bags of each table, one table after the
// other. A row is a 4-byte header, scale and bias, and int8 codes.

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
#if defined(__AVX512BW__)
#include "lookup/bytes_512.h"
#endif
#if defined(__AVX2__) && defined(__F16C__)
#include "lookup/exact_codes.h"
#define EMBERSHARD_HAS_WHOLE_SUMS
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

// The compiler must take `value` for read.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// In huge pages where the system gives them, every byte 1. Never freed.
inline std::span<std::byte> HugeMemory(size_t bytes) {
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    std::cerr << "limits: no memory for " << bytes << " bytes\n";
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
constexpr size_t kRowsDrawn = kBagRows * kBags * 32;  // By each thread.
constexpr size_t kMostAhead = 96;                     // Rows asked for.
constexpr size_t kHeaderBytes = 4;
constexpr size_t kLineBytes = 64;

// `apart`: codes begin at 64-byte lines, and headers lie in an array of their own.
class RandomRows {
 public:
  RandomRows(size_t threads, size_t codes, size_t rows, size_t tables, bool apart)
      : codes_(codes),
        tables_(tables),
        row_bytes_(codes + (apart ? 0 : kHeaderBytes)),
        header_step_(apart ? kHeaderBytes : row_bytes_),
        drawn_(threads),
        sums_(threads, std::vector<float>(kBags * tables * codes)) {
    std::byte* const memory = HugeMemory(rows * (kHeaderBytes + codes)).data();
    headers_ = apart ? memory + rows * codes : memory;
    first_codes_ = apart ? memory : memory + kHeaderBytes;
    std::mt19937_64 random(1);
    std::uniform_int_distribution<size_t> draw(0, rows / tables - 1);
    for (auto& of_thread : drawn_) {
      for (size_t i = 0; i < kRowsDrawn + kMostAhead; ++i) {
        const size_t table = i / (kBags * kBagRows) % tables;
        of_thread.push_back(static_cast<uint32_t>(table * (rows / tables) + draw(random)));
      }
    }
  }

  // Calls bag(its rows, where its sums go, where those of two bags later go); millions of rows.
  template <class Bag>
  double ForBags(size_t thread, const Bag& bag) {
    const uint32_t* const rows = drawn_[thread].data();
    const auto sums = [&](size_t i) {
      return &sums_[thread][(i % kBags * tables_ + i / kBags % tables_) * codes_];
    };
    for (size_t i = 0; i < kRowsDrawn / kBagRows; ++i)
      bag(rows + i * kBagRows, sums(i), sums(i + 2));
    return 1e-6 * double{kRowsDrawn};
  }

  const std::byte* Header(uint32_t row) const { return headers_ + row * header_step_; }
  const std::byte* Codes(uint32_t row) const { return first_codes_ + row * row_bytes_; }

  // Asks for all lines of a row.
  template <size_t kCodes>
  void Fetch(uint32_t row) const {
    __builtin_prefetch(Header(row));
    const std::byte* const codes = Codes(row);
    for (size_t at = row_bytes_ == kCodes ? 0 : kLineBytes; at < kCodes; at += kLineBytes) {
      __builtin_prefetch(codes + at);
    }
    if (row_bytes_ != kCodes) __builtin_prefetch(codes + kCodes - 1);
  }

 private:
  const size_t codes_, tables_, row_bytes_, header_step_;
  const std::byte* headers_;
  const std::byte* first_codes_;
  std::vector<std::vector<uint32_t>> drawn_;  // Of all tables: the first one's rows come first.
  std::vector<std::vector<float>> sums_;      // [bags, tables, codes]
};

template <size_t kCodes>
void FetchSums(const float* sums) {
  for (size_t at = 0; at < kCodes; at += kLineBytes / sizeof(float))
    __builtin_prefetch(sums + at, 1);
}

// Scale and bias are bfloat16, which every processor widens with a shift.
inline float Widened(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, sizeof(value));
  return std::bit_cast<float>(uint32_t{value} << 16);
}

// Each code is made a float, multiplied and added.
template <size_t kCodes>
double SumFloats(RandomRows& all, size_t thread) {
  constexpr size_t kAhead = 16;
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

// A word is read of each line, as lookups ask for them: no sums.
template <size_t kCodes>
double Touch(RandomRows& all, size_t thread) {
  uint32_t sum = 0;
  const auto read = [&](const std::byte* at) {
    uint32_t word;
    std::memcpy(&word, at, sizeof(word));
    sum += word;
  };
  const double done = all.ForBags(thread, [&](const uint32_t* rows, float*, float*) {
    for (size_t i = 0; i < kBagRows; ++i) {
      all.Fetch<kCodes>(rows[i + 64]);
      read(all.Header(rows[i]));
      for (size_t at = kLineBytes; at <= kCodes; at += kLineBytes) {
        read(all.Codes(rows[i]) + at - kHeaderBytes);
      }
    }
  });
  Keep(sum);
  return done;
}

#if defined(EMBERSHARD_HAS_WHOLE_SUMS)
#if defined(__AVX512BW__)
using WholeCodes = Int8Codes<Bytes512>;
#else
using WholeCodes = Int8Codes<Bytes256>;
#endif

// Our lookup's own sums of whole numbers. The rows' multipliers are given: no header is read, no
// row number checked, no batch cut.
template <size_t kCodes>
double SumWhole(RandomRows& all, size_t thread) {
  constexpr size_t kBlocks = std::min<size_t>(kCodes / WholeCodes::kColumns, 2);
  constexpr size_t kColumns = kBlocks * WholeCodes::kColumns;
  int16_t multipliers[kBagRows];
  std::fill_n(multipliers, kBagRows, 1000);
  Keep(multipliers);
  struct {
    const std::byte* const* rows;
    const int16_t* multipliers;
    size_t size;
  } group{nullptr, multipliers, kBagRows};
  const std::byte* at[kBagRows];
  return all.ForBags(thread, [&](const uint32_t* rows, float* out, const float* later) {
    FetchSums<kCodes>(later);
    for (size_t i = 0; i < kBagRows; ++i) at[i] = all.Codes(rows[i]);
    group.rows = at;
    const auto fetch = [&](size_t i) __attribute__((always_inline)) {
      all.Fetch<kCodes>(rows[i + 48]);
      all.Fetch<kCodes>(rows[i + 49]);
    };
    for (size_t first = 0; first < kCodes; first += kColumns) {
      typename WholeCodes::Sums sums[kBlocks];
      if (first == 0) {
        WholeCodes::Add<kBlocks>(group, first, WholeCodes::kColumns, sums, fetch);
      } else {
        WholeCodes::Add<kBlocks>(group, first, WholeCodes::kColumns, sums, [](size_t) {});
      }
      for (size_t b = 0; b < kBlocks; ++b) {
        float* const to = out + first + b * WholeCodes::kColumns;
        WholeCodes::Store(sums[b], 1e-6F, 1.0F, to, WholeCodes::kColumns);
      }
    }
  });
}
#endif

}  // namespace embershard::benchmarks
