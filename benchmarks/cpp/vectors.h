// Vectors of the processor that this is compiled for, and memory to fill them from.

#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <span>

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

}  // namespace embershard::benchmarks
