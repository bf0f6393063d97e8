// A program of one's own with embershard inside: it loads a package and asks it, without a server.
// docs/cpp.md explains it.
//
//   example_host tests/golden/format_0/tiny/1

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "engine/engine.h"
#include "engine/named_request.h"
#include "model/model.h"
#include "package/id_maps.h"

namespace {

// One user and three items, by the names that `embershard inspect` lists.
embershard::NamedInputs Inputs() {
  return {.num_examples = 3,
          .dense = {{"age", {0.125F}}, {"price", {-0.5F, 0.0F, 0.5F}}},
          .sparse = {{"user", {{embershard::HashString("cyd")}}},
                     {"tags", {{7, -1, int64_t{1} << 62}}, {{0.5F, 2.0F, -1.0F}}},
                     {"item", {{0}, {599, 1}, {512, 511, 3}}}}};
}

int Fail(const embershard::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s PACKAGE\n", argv[0]);
    return 2;
  }
  // Checks every byte and maps the tables.
  auto model = embershard::LoadPackageModel(argv[1], {});
  if (!model.ok()) return Fail(model.status());
  // Compares the scores of the package's samples, then takes requests from any thread.
  auto engine = embershard::Engine::Start(std::move(*model), {});
  if (!engine.ok()) return Fail(engine.status());

  const auto outputs = embershard::PredictNamed(engine->get(), Inputs(), std::chrono::seconds(1));
  if (!outputs.ok()) return Fail(outputs.status());
  for (const auto& [name, values] : *outputs) {
    std::printf("%s", name.c_str());
    for (const float value : values) std::printf(" %.9g", static_cast<double>(value));
    std::printf("\n");
  }
  return 0;
}
