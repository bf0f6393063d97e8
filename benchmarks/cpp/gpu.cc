// Measures a package on a device, without a server:
//
//   gpu <package> <plan> [<slots>]
//
// Prints a Markdown table for several batch sizes and 1 .. `slots` concurrent batches (default: 3):
// examples per second, latency of a batch, and the share of time that copies to and from the device
// would take at the rate of one large copy. Ids are random. Lists are as long as in the package's
// first sample.
//
// Does not link gRPC, so that it runs on a machine with only torch and FBGEMM.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/torch_device.h"
#include "model/model.h"
#include "package/samples.h"

namespace embershard {
namespace {

constexpr std::chrono::seconds kMeasured{1};
constexpr size_t kBatchSizes[] = {1, 16, 64, 256, 1024, 4096};
constexpr size_t kBatches = 8;  // Each thread runs them in turn.
constexpr size_t kWarmUp = 2;

[[noreturn]] void Fail(const std::string& message) {
  std::cerr << "gpu: " << message << '\n';
  std::exit(1);
}

template <class T>
T ValueOrFail(Result<T> result) {
  if (!result.ok()) Fail(result.status().message());
  return std::move(*result);
}

std::vector<size_t> ListLengths(const Model& model) {
  if (model.samples().empty()) Fail("package: expected samples, got none");
  const SampleRequest& sample = model.samples().front();
  std::vector<size_t> lengths;
  size_t list = 0;
  for (const SparseInput& input : model.manifest().schema.sparse) {
    lengths.push_back(static_cast<size_t>(sample.lengths[list]));
    list += input.scope == Scope::kRequest ? 1 : sample.num_examples;
  }
  return lengths;
}

Slot DrawBatch(const Model& model, size_t slot_number, size_t examples, std::mt19937_64* random) {
  const Manifest& manifest = model.manifest();
  const Schema& schema = manifest.schema;
  Slot slot(slot_number);
  slot.requests = 1;
  slot.examples = examples;
  slot.request_dense.assign(schema.request_dense_columns, 0.5F);
  slot.example_dense.assign(examples * schema.example_dense_columns, 0.5F);
  slot.request_of_example.assign(examples, 0);
  const std::vector<size_t> lengths = ListLengths(model);
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    const SparseInput& input = schema.sparse[i];
    const size_t table =
        input.lookups.empty() ? input.sequence_tables.front() : input.lookups.front().table;
    std::uniform_int_distribution<int64_t> draw(0, manifest.tables[table].rows - 1);
    const size_t bags = input.scope == Scope::kRequest ? 1 : examples;
    const size_t length = lengths[i];
    SlotSparse& lists = slot.sparse.emplace_back();
    for (size_t bag = 0; bag <= bags; ++bag) {
      lists.offsets.push_back(static_cast<int64_t>(bag * length));
    }
    for (size_t id = 0; id < bags * length; ++id) lists.rows.push_back(draw(*random));
    if (input.weighted) lists.weights.assign(bags * length, 1.0F);
  }
  return slot;
}

struct Measured {
  double examples_per_second = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  uint64_t copied_bytes = 0;  // Per batch.
};

uint64_t CopiedBytes(const Model& model) {
  uint64_t bytes = 0;
  for (const DeviceLoad& load : model.device_loads()) bytes += load.copied_bytes;
  return bytes;
}

void RunOrFail(Model* model, Slot* batch) {
  const Status status = model->Run(*batch);
  if (!status.ok()) Fail(status.message());
}

std::vector<std::vector<Slot>> DrawBatches(Model* model, size_t slots, size_t examples) {
  std::vector<std::vector<Slot>> batches(slots);
  for (size_t number = 0; number < slots; ++number) {
    std::mt19937_64 random(number);
    for (size_t i = 0; i < kBatches; ++i) {
      batches[number].push_back(DrawBatch(*model, number, examples, &random));
      if (i < kWarmUp) RunOrFail(model, &batches[number][i]);
    }
  }
  return batches;
}

Measured Measure(Model* model, size_t threads, std::vector<std::vector<Slot>>& batches) {
  std::vector<std::vector<double>> seconds(threads);
  std::vector<std::thread> running;
  const uint64_t copied_before = CopiedBytes(*model);
  const Clock::time_point start = Clock::now();
  for (size_t number = 0; number < threads; ++number) {
    running.emplace_back([&, number] {
      size_t batch = 0;
      do {
        const Clock::time_point begun = Clock::now();
        RunOrFail(model, &batches[number][batch++ % kBatches]);
        seconds[number].push_back(std::chrono::duration<double>(Clock::now() - begun).count());
      } while (Clock::now() - start < kMeasured);
    });
  }
  for (std::thread& thread : running) thread.join();
  const double passed = std::chrono::duration<double>(Clock::now() - start).count();
  std::vector<double> all;
  for (const auto& of_thread : seconds) all.insert(all.end(), of_thread.begin(), of_thread.end());
  std::ranges::sort(all);
  const size_t examples = all.size() * batches[0][0].examples;
  return {.examples_per_second = static_cast<double>(examples) / passed,
          .p50_ms = 1000 * all[all.size() / 2],
          .p99_ms = 1000 * all[all.size() * 99 / 100],
          .copied_bytes = (CopiedBytes(*model) - copied_before) / all.size()};
}

// Bytes per second.
double CopyRate(const std::string& device_name) {
  constexpr size_t kBytes = size_t{64} << 20;
  constexpr int kCopies = 16;
  const DeviceLayout none;
  const auto device = ValueOrFail(MakeTorchDevice(device_name, 0, none));
  const auto memory = ValueOrFail(device->Allocate(kBytes));
  const auto pinned = ValueOrFail(device->AllocatePinned(kBytes));
  const auto stream = ValueOrFail(device->MakeStream());
  const auto copy = [&] {
    const Status copied = stream->CopyIn(memory->data(), pinned->data(), kBytes);
    if (!copied.ok()) Fail(copied.message());
  };
  copy();
  (void)stream->Synchronize();
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kCopies; ++i) copy();
  (void)stream->Synchronize();
  return kBytes * kCopies / std::chrono::duration<double>(Clock::now() - start).count();
}

void Run(const std::string& package, const std::string& plan, size_t slots) {
  ModelOptions options;
  options.package.plan = plan;
  options.slots = static_cast<int>(slots);
  options.fbgemm_folder = EMBERSHARD_FBGEMM_FOLDER;
  if (const char* folder = std::getenv("EMBERSHARD_FBGEMM")) options.fbgemm_folder = folder;
  const auto model = ValueOrFail(LoadPackageModel(package, options));
  const double rate = CopyRate(model->device_loads().front().name);
  std::printf("*%s*, plan %s; one large copy to the device: %.1f GB/s\n\n",
              model->manifest().model.c_str(), plan.c_str(), rate / 1e9);
  std::printf("| examples a batch | batches at once | examples/s | p50 ms | p99 ms | copies |\n");
  std::printf("|---|---|---|---|---|---|\n");
  for (const size_t examples : kBatchSizes) {
    std::vector<std::vector<Slot>> batches = DrawBatches(model.get(), slots, examples);
    for (size_t threads = 1; threads <= slots; ++threads) {
      const Measured measured = Measure(model.get(), threads, batches);
      const double batches_per_second =
          measured.examples_per_second / static_cast<double>(examples);
      const double copying = static_cast<double>(measured.copied_bytes) * batches_per_second / rate;
      std::printf("| %zu | %zu | %.0f | %.3f | %.3f | %.1f %% |\n", examples, threads,
                  measured.examples_per_second, measured.p50_ms, measured.p99_ms, 100 * copying);
      std::fflush(stdout);
    }
  }
  std::printf("\n");
}

}  // namespace
}  // namespace embershard

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: gpu <package> <plan> [<slots>]\n";
    return 2;
  }
  embershard::Run(argv[1], argv[2], argc == 4 ? std::strtoul(argv[3], nullptr, 10) : 3);
  return 0;
}
