// What one core of this machine can do at best, as a side of a benchmark:
//
//   limits stream                  bytes read from memory, one behind the other
//   limits gather <dim> [<rows>]   int8 rows of a 1 GiB table (or of so many rows), drawn at
//                                  random, dequantized and added up 20 at a time
//   limits fma                     float32 operations in registers, two a multiply-add
//   limits bf16                    the same of bfloat16 pairs into float32, in tiles (AMX) where
//   the
//                                  processor has them
//   limits vnni                    the same of int8 quadruples into int32
//
// Answers as side.h says. Ends with 3 where the processor lacks the instructions. Several cores:
// several processes.

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/cpp/side.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr size_t kMemoryBytes = size_t{1} << 30;
constexpr size_t kBagRows = 20;
constexpr size_t kAhead = 16;       // Rows that are fetched before they are read.
constexpr size_t kHeaderBytes = 4;  // Scale and bias, both float16.
constexpr int kNotOnThisMachine = 3;

// Does some of the work; returns how many units of it.
using Run = std::function<double()>;

// The compiler must think that somebody reads it. What is handed over has an address, and so lies
// in memory: not for what is still to be computed with.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

// Of huge pages where the system gives them, each written once. Never freed.
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

// Marsaglia's xorshift: cheap, and no pattern that a prefetcher could follow.
uint64_t Next(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

#if defined(__x86_64__)

#define EMBERSHARD_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,f16c")))

bool HasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

EMBERSHARD_AVX512 double ReadAll(std::span<const std::byte> memory) {
  constexpr size_t kStreams = 4;
  __m512i sums[kStreams] = {};
  for (size_t at = 0; at < memory.size(); at += kStreams * sizeof(__m512i)) {
    for (size_t i = 0; i < kStreams; ++i) {
      sums[i] ^= _mm512_load_si512(memory.data() + at + i * sizeof(__m512i));
    }
  }
  __m512i sum = sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
  Keep(sum);
  return static_cast<double>(memory.size());
}

// Rows as FBGEMM lays them out for CPUs: scale, bias, `kVectors` times 16 codes, no padding.
template <size_t kVectors>
EMBERSHARD_AVX512 double PoolRows(const std::byte* table, std::span<const uint32_t> rows) {
  constexpr size_t kRowBytes = kHeaderBytes + kVectors * 16;
  float out[kVectors * 16];
  for (size_t bag = 0; bag + kBagRows <= rows.size(); bag += kBagRows) {
    __m512 sums[kVectors] = {};
    float biases = 0;
    for (size_t i = bag; i < bag + kBagRows; ++i) {
      const std::byte* ahead =
          table + size_t{rows[std::min(i + kAhead, rows.size() - 1)]} * kRowBytes;
      for (size_t at = 0; at < kRowBytes; at += 64) _mm_prefetch(ahead + at, _MM_HINT_T0);
      _mm_prefetch(ahead + kRowBytes - 1, _MM_HINT_T0);
      const std::byte* row = table + size_t{rows[i]} * kRowBytes;
      uint16_t header[2];
      std::memcpy(header, row, sizeof(header));
      const __m512 scale = _mm512_set1_ps(_cvtsh_ss(header[0]));
      biases += _cvtsh_ss(header[1]);
      for (size_t v = 0; v < kVectors; ++v) {
        const void* from = row + kHeaderBytes + v * 16;
        const __m128i codes = _mm_loadu_si128(static_cast<const __m128i*>(from));
        const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
        sums[v] = _mm512_fmadd_ps(values, scale, sums[v]);
      }
    }
    for (size_t v = 0; v < kVectors; ++v) {
      _mm512_storeu_ps(out + v * 16, sums[v] + _mm512_set1_ps(biases));
    }
    Keep(out);
  }
  return static_cast<double>(rows.size());
}

// Enough chains that no instruction waits for the one before. Each starts with what the compiler
// cannot know, or it would compute only one of them.
constexpr size_t kChains = 12;
constexpr size_t kSteps = 1 << 20;

EMBERSHARD_AVX512 double MultiplyAdd() {
  __m512 sums[kChains] = {};
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  const __m512 factor = _mm512_set1_ps(0.999f), added = _mm512_set1_ps(1e-3f);
  for (size_t step = 0; step < kSteps; ++step) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, added);
  }
  __m512 total = {};
  for (const __m512& sum : sums) total = _mm512_add_ps(total, sum);
  Keep(total);
  return double{kSteps} * kChains * 16 * 2;
}

__attribute__((target("avx512f,avx512bf16"))) double Bfloat16Dot() {
  __m512 sums[kChains] = {};
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  const auto ones = (__m512bh)_mm512_set1_epi16(0x3f80);  // 1.0
  for (size_t step = 0; step < kSteps; ++step) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, ones, ones);
  }
  __m512 total = {};
  for (const __m512& sum : sums) total = _mm512_add_ps(total, sum);
  Keep(total);
  return double{kSteps} * kChains * 32 * 2;
}

// Whether the processor has tiles, and the kernel lets this process use them.
bool HasTiles() {
  constexpr int kAskPermission = 0x1023, kTileData = 18;  // Of arch_prctl(2).
  return __builtin_cpu_supports("amx-bf16") &&
         syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
}

// Four products of 16 x 32 by 32 x 16 at a time, of two left and two right tiles.
__attribute__((target("amx-tile,amx-bf16"))) double Bfloat16Tiles() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};  // In bytes.
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shapes;
  _tile_loadconfig(&shapes);
  alignas(64) uint16_t ones[16 * 32];
  std::fill(std::begin(ones), std::end(ones), uint16_t{0x3f80});  // 1.0
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, ones, 64);
  _tile_loadd(5, ones, 64);
  _tile_loadd(6, ones, 64);
  _tile_loadd(7, ones, 64);
  for (size_t step = 0; step < kSteps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) float sums[16 * 16];
  _tile_stored(0, sums, 64);
  Keep(sums);
  _tile_release();
  return double{kSteps} * 4 * 16 * 16 * 32 * 2;
}

__attribute__((target("avx512f,avx512vnni"))) double Int8Dot() {
  __m512i sums[kChains] = {};
  for (__m512i& sum : sums) asm volatile("" : "+v"(sum));
  const __m512i left = _mm512_set1_epi8(1), right = _mm512_set1_epi8(2);
  for (size_t step = 0; step < kSteps; ++step) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, left, right);
  }
  __m512i total = {};
  for (const __m512i& sum : sums) total = _mm512_add_epi32(total, sum);
  Keep(total);
  return double{kSteps} * kChains * 64 * 2;
}

Run Gather(size_t dim, size_t rows) {
  constexpr size_t kDrawn = kBagRows * (size_t{1} << 16);
  const size_t row_bytes = kHeaderBytes + dim;
  if (rows == 0) rows = kMemoryBytes / row_bytes;
  const std::byte* table = Memory(rows * row_bytes).data();
  std::vector<uint32_t> drawn(kDrawn);
  uint64_t state = 88172645463325252u;
  for (uint32_t& row : drawn) row = static_cast<uint32_t>(Next(state) % rows);
  auto* pool = dim == 64 ? PoolRows<4> : PoolRows<8>;
  return [=, drawn = std::move(drawn)] { return pool(table, drawn); };
}

// Nothing where the processor lacks the instructions.
std::optional<Run> Find(const std::string& kind, size_t dim, size_t rows) {
  if (!HasAvx512()) return std::nullopt;
  if (kind == "stream") return [memory = Memory(kMemoryBytes)] { return ReadAll(memory); };
  if (kind == "gather") return Gather(dim, rows);
  if (kind == "fma") return MultiplyAdd;
  if (kind == "bf16" && HasTiles()) return Bfloat16Tiles;
  if (kind == "bf16" && __builtin_cpu_supports("avx512bf16")) return Bfloat16Dot;
  if (kind == "vnni" && __builtin_cpu_supports("avx512vnni")) return Int8Dot;
  return std::nullopt;
}

#else

std::optional<Run> Find(const std::string&, size_t, size_t) { return std::nullopt; }

#endif

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  const size_t dim = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 128;
  const size_t rows = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
  const bool known = kind == "stream" || kind == "fma" || kind == "bf16" || kind == "vnni";
  if (!known && (kind != "gather" || (dim != 64 && dim != 128))) {
    std::cerr << "usage: limits stream | gather 64|128 [ROWS] | fma | bf16 | vnni\n";
    return 2;
  }
  const std::optional<Run> run = Find(kind, dim, rows);
  if (!run) {
    std::cerr << "limits: " << kind << ": not on this machine\n";
    return kNotOnThisMachine;
  }
  embershard::AnswerBlocks(*run);
}
