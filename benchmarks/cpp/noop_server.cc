// embershard's server with a model that does no work. Outputs are zeros.
//
//   noop_server PACKAGE
//
// PACKAGE is the folder of a version. Serves until SIGTERM or SIGINT.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "benchmarks/cpp/serving.h"
#include "engine/engine.h"
#include "grpc/server.h"
#include "model/model.h"
#include "package/package.h"

namespace embershard::benchmarks {
namespace {

class NoopModel final : public Model {
 public:
  explicit NoopModel(std::unique_ptr<Package> package) : package_(std::move(package)) {}

  const Manifest& manifest() const override { return package_->manifest(); }
  const IdMap& id_map(size_t sparse_input) const override { return package_->id_map(sparse_input); }
  // No samples, because zeros cannot be compared with stored scores.
  const std::vector<SampleRequest>& samples() const override { return no_samples_; }

  Status Run(Slot& slot) override {
    const std::vector<OutputSpec>& outputs = package_->schema().outputs;
    slot.outputs.resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t rows = outputs[i].scope == Scope::kRequest ? slot.requests : slot.examples;
      slot.outputs[i].assign(rows * outputs[i].width, 0.0F);
    }
    return {};
  }

 private:
  const std::unique_ptr<Package> package_;
  const std::vector<SampleRequest> no_samples_;
};

Status Serve(const std::filesystem::path& folder) {
  const StopSignals stop;
  Result<std::unique_ptr<Package>> package = Package::Open(folder, {});
  if (!package.ok()) return package.status();
  Result<std::unique_ptr<Engine>> engine =
      Engine::Start(std::make_unique<NoopModel>(std::move(*package)), {});
  if (!engine.ok()) return engine.status();
  Result<std::unique_ptr<rpc::Server>> server =
      rpc::Server::Start(ServedModels::Of(std::move(*engine)), {});
  if (!server.ok()) return server.status();
  stop.ServeUntilOne((*server)->port());
  return {};
}

int Main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: noop_server PACKAGE\n");
    return EXIT_FAILURE;
  }
  const Status status = Serve(arguments[1]);
  if (status.ok()) return EXIT_SUCCESS;
  std::fprintf(stderr, "noop_server: %s\n", status.message().c_str());
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace embershard::benchmarks

int main(int count, char** arguments) { return embershard::benchmarks::Main(count, arguments); }
