#include "embershard/kernels/cpp/row_update.h"

#include <cstring>

#include "base/core_count.h"
#include "embershard/kernels/cpp/row_update_loop.h"

namespace embershard::kernels {
namespace {

struct CompilerHalves {
  static void Load(const std::byte* halves, float* floats) {
    _Float16 values[4];
    std::memcpy(values, halves, sizeof(values));
    for (int at = 0; at < 4; ++at) floats[at] = static_cast<float>(values[at]);
  }
  static void Store(const float* floats, std::byte* halves) {
    _Float16 values[4];
    for (int at = 0; at < 4; ++at) values[at] = static_cast<_Float16>(floats[at]);
    std::memcpy(halves, values, sizeof(values));
  }
};

}  // namespace

void UpdateRowsBaseline(const TableRows& table, const Step& step, const float* gradients,
                        std::span<const Occurrence> sorted) {
  UpdateBy<CompilerHalves>(table, step, gradients, sorted);
}

UpdateRows FastestUpdateRows() {
#if defined(__x86_64__)
  static const std::set<std::string> flags = UsableFlags();
  if (flags.contains("avx2") && flags.contains("f16c")) return UpdateRowsAvx2;
#endif
  return UpdateRowsBaseline;
}

}  // namespace embershard::kernels
