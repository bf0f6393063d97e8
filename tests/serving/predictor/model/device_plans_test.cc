// Plans for devices by torch's kernels, against the lookups of processors: on the CPU, or on the
// devices that EMBERSHARD_TEST_DEVICE names, such as cuda (`make test-gpu`).

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>

#include "dense/dense_program.h"
#include "device/device_fixture.h"
#include "device/torch_device.h"
#include "model/device_model.h"
#include "model/model.h"
#include "testing/paths.h"

namespace embershard {
namespace {

using testing::CopyInputs;
using testing::CutShards;
using testing::DeviceNames;
using testing::EveryKindOfLookup;
using testing::EveryKindOfTable;
using testing::FillSlot;
using testing::MakeTable;
using testing::PackageBuilder;
using testing::ScratchFolder;
using testing::TestTable;

std::string DeviceKind() {
  const char* kind = std::getenv("EMBERSHARD_TEST_DEVICE");
  return kind != nullptr ? kind : "torch-cpu";
}

// FBGEMM computes int8 and int4 rows in float16 on GPUs.
bool RoundsToHalf(WeightType weights) {
  return DeviceKind() == "cuda" && (weights == WeightType::kInt8 || weights == WeightType::kInt4);
}

// Widths of the pooled matrices and of all sequences in example scope.
struct Widths {
  int64_t request = 0;
  int64_t example = 0;
  int64_t last = 0;
};

Widths WidthsOf() {
  Widths widths;
  for (const TestTable& table : EveryKindOfTable()) {
    widths.request += 4 * table.dim;  // Sum and mean, weighted and not.
    widths.example += 4 * table.dim;
    widths.last += table.dim;
  }
  return widths;
}

// With the plans "cpu" and "devices".
std::filesystem::path WritePackage(size_t devices, const ScratchFolder& folder) {
  PackageBuilder builder = EveryKindOfLookup();
  const Widths widths = WidthsOf();
  builder.AddOutput("example", Scope::kExample, {widths.example});
  builder.AddOutput("request", Scope::kRequest, {widths.request});
  builder.AddOutput("last", Scope::kExample, {widths.last});
  builder.SetProgram(testing::ReadTestProgram("everything"));
  builder.AddPlan("cpu", {"cpu:0"}, std::vector<size_t>(EveryKindOfTable().size()));
  builder.AddPlanOfShards("devices", DeviceNames(DeviceKind(), devices), CutShards(devices));
  builder.Write(folder.path());
  return folder.path();
}

std::unique_ptr<Model> Load(const std::filesystem::path& folder, const std::string& plan) {
  ModelOptions options;
  options.threads = 1;
  options.package.plan = plan;
  options.fbgemm_folder = testing::FbgemmFolder();
  auto model = LoadPackageModel(folder, options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return std::move(*model);
}

// For each pooled value, the sum of magnitudes and the error that it allows.
struct Sums {
  std::vector<double> magnitudes;
  std::vector<double> allowed;  // Relative to the magnitudes.
};

// In the order of the pooled columns of a scope, as EveryKindOfLookup() adds them.
Sums SumsOf(const Manifest& manifest, Scope scope, const Slot& slot) {
  const size_t bags = scope == Scope::kRequest ? slot.requests : slot.examples;
  const Schema& schema = manifest.schema;
  const size_t columns =
      scope == Scope::kRequest ? schema.request_pooled_columns : schema.example_pooled_columns;
  static const std::vector<TestTable> tables = EveryKindOfTable();
  Sums sums{std::vector<double>(bags * columns), std::vector<double>(bags * columns)};
  for (size_t i = 0; i < schema.sparse.size(); ++i) {
    if (schema.sparse[i].scope != scope) continue;
    const SlotSparse& lists = slot.sparse[i];
    for (const LookupSpec& lookup : schema.sparse[i].lookups) {
      const TestTable& table = tables[lookup.table];
      for (size_t bag = 0; bag < bags; ++bag) {
        const auto length = static_cast<double>(lists.offsets[bag + 1] - lists.offsets[bag]);
        for (int64_t column = 0; column < table.dim; ++column) {
          const size_t cell = bag * columns + lookup.column + static_cast<size_t>(column);
          double sum = 0;
          for (int64_t at = lists.offsets[bag]; at < lists.offsets[bag + 1]; ++at) {
            const int64_t row = lists.rows[static_cast<size_t>(at)];
            if (row < 0) continue;
            const float weight = lists.weights.empty() ? 1 : lists.weights[static_cast<size_t>(at)];
            sum += std::abs(static_cast<double>(weight)) * table.row_magnitudes(row)[column];
          }
          const bool mean = lookup.pooling == Pooling::kMean && length > 0;
          sums.magnitudes[cell] = mean ? sum / length : sum;
          // Each side rounds once more than it adds.
          sums.allowed[cell] = RoundsToHalf(table.weights) ? 0x1p-10 : (length + 2) * 0x1p-23;
        }
      }
    }
  }
  return sums;
}

void ExpectWithin(const std::vector<float>& got, const std::vector<float>& expected,
                  const Sums& sums) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], sums.allowed[i] * sums.magnitudes[i]) << "value " << i;
  }
}

std::atomic<size_t> lookup_calls = 0;

std::unique_ptr<at::ObserverContext> CountLookups(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  lookup_calls += name == "fbgemm::int_nbit_split_embedding_codegen_lookup_function" ? 1 : 0;
  return nullptr;
}

constexpr size_t kBatches = 20000 / 3;
constexpr size_t kOutputs = 4;  // score, example, request, last

class DevicePlans : public ::testing::TestWithParam<size_t> {};

TEST_P(DevicePlans, GiveWhatProcessorsGive) {
  const ScratchFolder folder;
  WritePackage(GetParam(), folder);
  const std::unique_ptr<Model> processors = Load(folder.path(), "cpu");
  const std::unique_ptr<Model> devices = Load(folder.path(), "devices");
  std::mt19937 random(static_cast<uint32_t>(GetParam()));
  Slot expected;
  Slot got;
  for (size_t batch = 0; batch < kBatches; ++batch) {
    // Now and then a list of up to 1,000 ids.
    FillSlot(devices->manifest().schema, batch % 500 == 0 ? 1000 : 7, &random, &expected);
    CopyInputs(expected, &got);
    ASSERT_TRUE(processors->Run(expected).ok());
    const Status status = devices->Run(got);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(got.outputs.size(), kOutputs);
    for (size_t i = 0; i < got.outputs[0].size(); ++i) {
      ASSERT_NEAR(got.outputs[0][i], expected.outputs[0][i], DeviceKind() == "cuda" ? 1e-2 : 1e-5);
    }
    const Manifest& manifest = devices->manifest();
    ExpectWithin(got.outputs[1], expected.outputs[1], SumsOf(manifest, Scope::kExample, expected));
    ExpectWithin(got.outputs[2], expected.outputs[2], SumsOf(manifest, Scope::kRequest, expected));
    ASSERT_EQ(got.outputs[3].size(), expected.outputs[3].size());
    for (size_t i = 0; i < got.outputs[3].size(); ++i) {
      const float value = expected.outputs[3][i];
      const double allowed = DeviceKind() == "cuda" ? 1e-3 : 1e-6;
      ASSERT_NEAR(got.outputs[3][i], value, allowed * (1 + std::abs(value))) << "value " << i;
    }
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, DevicePlans, ::testing::Values(1, 2, 4));

TEST(DeviceModelLookups, AreFbgemmsOnPackedRows) {
  const ScratchFolder folder;
  WritePackage(2, folder);
  ASSERT_TRUE(LoadFbgemmOperators(testing::FbgemmFolder()).ok());
  auto opened = Package::Open(folder.path(), {.plan = "devices"});
  ASSERT_TRUE(opened.ok());
  const std::shared_ptr<const Package> package = std::move(*opened);
  auto model = MakeDeviceModel(package, MakeTorchDevice, {});
  ASSERT_TRUE(model.ok()) << model.status().message();
  // A read of the package's own rows ends the process from now on.
  for (size_t table = 0; table < package->manifest().tables.size(); ++table) {
    auto* rows = const_cast<std::byte*>(package->tables().rows(table));
    ASSERT_EQ(mprotect(rows, package->tables().size_bytes(table), PROT_NONE), 0);
  }
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(CountLookups).scopes({at::RecordScope::FUNCTION}));
  std::mt19937 random(1);
  Slot slot;
  FillSlot(package->schema(), 7, &random, &slot);
  const Status status = (*model)->Run(slot);
  at::removeCallback(handle);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(lookup_calls, 4U);
}

TEST(DeviceModelLookups, HalfTransfersRoundWhatOtherDevicesLookUp) {
  const ScratchFolder folder;
  WritePackage(2, folder);
  ModelOptions options;
  options.package.plan = "devices";
  options.fbgemm_folder = testing::FbgemmFolder();
  options.half_transfers = true;
  auto halves = LoadPackageModel(folder.path(), options);
  ASSERT_TRUE(halves.ok()) << halves.status().message();
  const std::unique_ptr<Model> whole = Load(folder.path(), "devices");
  std::mt19937 random(1);
  Slot slot;
  Slot other;
  FillSlot(whole->manifest().schema, 7, &random, &slot);
  CopyInputs(slot, &other);
  ASSERT_TRUE(whole->Run(slot).ok());
  ASSERT_TRUE((*halves)->Run(other).ok());
  size_t different = 0;
  for (size_t i = 0; i < slot.outputs[1].size(); ++i) {
    const float value = slot.outputs[1][i];
    ASSERT_NEAR(other.outputs[1][i], value, 2e-3F * (1 + std::abs(value)));
    different += other.outputs[1][i] == value ? 0 : 1;
  }
  EXPECT_GT(different, 0U);
  // Copied bytes are counted; here they are halved.
  EXPECT_LT((*halves)->device_loads()[0].copied_bytes, whole->device_loads()[0].copied_bytes);
}

Status LoadWithPlan(const std::vector<std::string>& devices, const TestTable& table,
                    const ScratchFolder& folder) {
  PackageBuilder builder;
  builder.AddTable(table);
  builder.AddSparse("ids", Scope::kExample, false, {{table.name}});
  builder.AddOutput("score", Scope::kExample, {});
  builder.SetProgram(testing::ReadTestProgram("sound"));
  nlohmann::json shards = nlohmann::json::array(
      {testing::ShardOf(table.name, 0, table.rows, 0, table.dim, {devices.size() - 1})});
  builder.AddPlanOfShards("devices", devices, shards);
  builder.Write(folder.path());
  ModelOptions options;
  options.fbgemm_folder = testing::FbgemmFolder();
  return LoadPackageModel(folder.path(), options).status();
}

TEST(DeviceModelRefusals, DevicesOfTwoKinds) {
  const ScratchFolder folder;
  const Status status =
      LoadWithPlan({"cpu:0", "cuda:0"}, MakeTable("users", WeightType::kInt8, 9, 4, 1), folder);
  EXPECT_EQ(status.reason(), StatusReason::kOtherDevices);
  EXPECT_EQ(status.message(),
            "plans/devices.json: expected devices of one kind, got 'cpu:0' and 'cuda:0'; "
            "`embershard plan` makes such plans");
}

TEST(DeviceModelRefusals, ScalesThatOverflowInFloat16) {
  TestTable table = MakeTable("users", WeightType::kInt8, 9, 4, 1);
  table.bytes[static_cast<size_t>(5 * table.row_bytes)] = 0x00;  // 0x5800 is 128 in float16.
  table.bytes[static_cast<size_t>(5 * table.row_bytes + 1)] = 0x58;
  // The values of a row are its scale times codes, and its bias.
  const size_t bias_at = static_cast<size_t>(5 * table.row_bytes + 2);
  table.bytes[bias_at] = 0x00;
  table.bytes[bias_at + 1] = 0x3C;  // 1.
  const ScratchFolder folder;
  const Status status = LoadWithPlan({"torch-cpu:0"}, table, folder);
  EXPECT_EQ(status.message(),
            "table 'users', row 5: expected a scale below 128 and values up to 65504 on a GPU, got "
            "scale 128.000000 and bias 1.000000; export the table with fp16 or fp32 weights");
}

}  // namespace
}  // namespace embershard
