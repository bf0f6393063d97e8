#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/background.h"
#include "model/model.h"
#include "testing/package_builder.h"
#include "testing/paths.h"
#include "testing/scratch_folder.h"
#include "testing/test_table.h"
#include "testing/wait_for.h"

namespace embershard {
namespace {

using testing::MakeTable;
using testing::PackageBuilder;
using testing::ScratchFolder;
using testing::TestTable;

// A package around ../make_test_program.py's programs, made for pooled widths of 4 each.
class PackageModelTest : public ::testing::Test {
 protected:
  PackageModelTest()
      : users_(MakeTable("users", WeightType::kInt8, 10, 4, 1)),
        items_(MakeTable("items", WeightType::kFp16, 20, 4, 2)) {}

  PackageBuilder Builder() const {
    PackageBuilder builder;
    builder.AddTable(users_);
    builder.AddTable(items_);
    builder.AddDense("age", Scope::kRequest);
    builder.AddDense("price", Scope::kExample);
    builder.AddSparse("user", Scope::kRequest, false, {{"users"}});
    builder.AddSparse("item", Scope::kExample, true, {{"items"}});
    builder.AddOutput("score", Scope::kExample, {});
    builder.AddOutput("pair", Scope::kExample, {2});
    builder.AddOutput("user", Scope::kRequest, {4});
    builder.SetProgram(testing::ReadTestProgram("sound"));
    return builder;
  }

  Result<std::unique_ptr<Model>> Load(PackageBuilder builder) const {
    builder.Write(folder_.path());
    return LoadWritten(testing::FbgemmFolder());
  }

  Result<std::unique_ptr<Model>> LoadWritten(const std::filesystem::path& fbgemm_folder) const {
    ModelOptions options;
    options.threads = 1;
    options.fbgemm_folder = fbgemm_folder;
    return LoadPackageModel(folder_.path(), options);
  }

  // Requests of one and two examples: users {3} and {}, items 4, 5 and 6 weighted by 2.
  static Slot SlotOfThree() {
    Slot slot;
    slot.requests = 2;
    slot.examples = 3;
    slot.request_dense = {100, 200};
    slot.example_dense = {1, 2, 3};
    slot.sparse = {{.rows = {3}, .offsets = {0, 1, 1}, .weights = {}},
                   {.rows = {4, 5, 6}, .offsets = {0, 1, 2, 3}, .weights = {2, 2, 2}}};
    slot.request_of_example = {0, 1, 1};
    return slot;
  }

  double UserSum(int64_t row) const { return Sum(users_, row); }
  double ItemSum(int64_t row) const { return Sum(items_, row); }
  float Item(int64_t row, int64_t column) const {
    return static_cast<float>(items_.row(row)[column]);
  }

  const TestTable users_;
  const TestTable items_;
  const ScratchFolder folder_;

 private:
  static double Sum(const TestTable& table, int64_t row) {
    const double* values = table.row(row);
    return values[0] + values[1] + values[2] + values[3];
  }
};

TEST_F(PackageModelTest, RunsTheLookupAndTheProgramOverASlot) {
  auto model = Load(Builder());
  ASSERT_TRUE(model.ok()) << model.status().message();
  Slot slot = SlotOfThree();
  const Status status = (*model)->Run(slot);
  ASSERT_TRUE(status.ok()) << status.message();

  ASSERT_EQ(slot.outputs.size(), 3);
  ASSERT_EQ(slot.outputs[0].size(), 3);
  const double tolerance = 1e-4;  // The sums are a few hundred, in float32.
  EXPECT_NEAR(slot.outputs[0][0], 100 + UserSum(3) + 10 + 2 * ItemSum(4), tolerance);
  EXPECT_NEAR(slot.outputs[0][1], 200 + 20 + 2 * ItemSum(5), tolerance);
  EXPECT_NEAR(slot.outputs[0][2], 200 + 30 + 2 * ItemSum(6), tolerance);
  EXPECT_EQ(slot.outputs[1], (std::vector<float>{2 * Item(4, 0), 2 * Item(4, 1), 2 * Item(5, 0),
                                                 2 * Item(5, 1), 2 * Item(6, 0), 2 * Item(6, 1)}));
  ASSERT_EQ(slot.outputs[2].size(), 8);
  EXPECT_EQ(slot.outputs[2][0], static_cast<float>(2 * users_.row(3)[0]));
  EXPECT_EQ(slot.outputs[2][4], 0);
}

// Threads of this process.
size_t ThreadsThatGiveWay() {
  size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(task.path().filename().string());
    if (sched_getscheduler(thread) == SCHED_IDLE) ++count;
  }
  return count;
}

TEST_F(PackageModelTest, LoadedInTheBackgroundItsOwnThreadsDoNotGiveWay) {
  Builder().Write(folder_.path());
  auto background = std::make_unique<Background>();
  ModelOptions options;
  options.threads = 2;  // One of them is the model's own.
  options.fbgemm_folder = testing::FbgemmFolder();
  options.background = background.get();
  auto model = LoadPackageModel(folder_.path(), options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_GE(ThreadsThatGiveWay(), 1U);
  background.reset();  // Also ends the threads that the dense program started there.
  EXPECT_TRUE(WaitFor([] { return ThreadsThatGiveWay() == 0; }));
  Slot slot = SlotOfThree();
  EXPECT_TRUE((*model)->Run(slot).ok());
  EXPECT_EQ(ThreadsThatGiveWay(), 0U);
}

TEST_F(PackageModelTest, ASlotMayBeUsedAgainForASmallerBatch) {
  auto model = Load(Builder());
  ASSERT_TRUE(model.ok()) << model.status().message();
  Slot slot = SlotOfThree();
  ASSERT_TRUE((*model)->Run(slot).ok());
  const std::vector<float> first = slot.outputs[0];

  slot.requests = 1;
  slot.examples = 1;
  slot.request_dense = {100};
  slot.example_dense = {1};
  slot.sparse = {{.rows = {3}, .offsets = {0, 1}, .weights = {}},
                 {.rows = {4}, .offsets = {0, 1}, .weights = {2}}};
  slot.request_of_example = {0};
  ASSERT_TRUE((*model)->Run(slot).ok());
  EXPECT_EQ(slot.outputs[0], std::vector<float>{first[0]});
  EXPECT_EQ(slot.outputs[2].size(), 4);
}

TEST_F(PackageModelTest, KnowsItsManifestIdMapsAndSamples) {
  auto model = Load(Builder());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ((*model)->manifest().model, "test");
  EXPECT_EQ((*model)->samples().size(), 1);
  const int64_t id = 7;
  int64_t row = 0;
  EXPECT_EQ((*model)->id_map(1).Map(Unaligned<int64_t>(&id, 1), &row), 0);
  EXPECT_EQ(row, 7);
}

TEST_F(PackageModelTest, AFailedLookupIsAnErrorAndTheNextBatchIsFine) {
  auto model = Load(Builder());
  ASSERT_TRUE(model.ok()) << model.status().message();
  Slot slot = SlotOfThree();
  slot.sparse[1].rows[2] = 20;
  const Status status = (*model)->Run(slot);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "table 'items': expected a row in -1..19 for feature 'item', got 20");
  Slot next = SlotOfThree();
  EXPECT_TRUE((*model)->Run(next).ok());
}

TEST_F(PackageModelTest, APackageThatDoesNotOpenIsRefused) {
  Builder().Write(folder_.path());
  std::ofstream(folder_.path() / "plans/default.json", std::ios::app) << " ";
  const auto model = LoadWritten(testing::FbgemmFolder());
  EXPECT_EQ(model.status().code(), StatusCode::kBadPackage);
  EXPECT_NE(model.status().message().find("plans/default.json"), std::string::npos)
      << model.status().message();
}

TEST_F(PackageModelTest, AProgramThatDoesNotFitTheSchemaIsRefused) {
  PackageBuilder builder = Builder();
  builder.SetProgram(testing::ReadTestProgram("two_tensors"));
  const auto model = Load(std::move(builder));
  EXPECT_EQ(model.status().code(), StatusCode::kBadPackage);
  EXPECT_TRUE(model.status().message().starts_with("programs/dense.pt: "))
      << model.status().message();
}

TEST_F(PackageModelTest, WithoutFbgemmItSaysWhatIsMissing) {
  Builder().Write(folder_.path());
  const ScratchFolder empty;
  const auto model = LoadWritten(empty.path());
  EXPECT_EQ(model.status().code(), StatusCode::kNotFound);
  EXPECT_NE(model.status().message().find("fbgemm_gpu_config.so"), std::string::npos)
      << model.status().message();
}

// Signs a package with a new key, whose public half is all that is trusted.
std::shared_ptr<const TrustedKeys> SignWithNewKey(const std::filesystem::path& package) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free);
  const std::string pem = package.string() + ".pem";
  const std::unique_ptr<BIO, decltype(&BIO_free)> file(BIO_new_file(pem.c_str(), "w"), BIO_free);
  EXPECT_EQ(PEM_write_bio_PUBKEY(file.get(), key.get()), 1);
  EXPECT_EQ(BIO_flush(file.get()), 1);

  std::ifstream digest(package / "manifest.sha256", std::ios::binary);
  const std::string line{std::istreambuf_iterator<char>(digest), std::istreambuf_iterator<char>()};
  std::string signature(TrustedKeys::kSignatureBytes, '\0');
  size_t size = signature.size();
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  EXPECT_EQ(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()), 1);
  EXPECT_EQ(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                           reinterpret_cast<const unsigned char*>(line.data()), line.size()),
            1);
  std::ofstream(SignatureFile(package), std::ios::binary) << signature;
  auto keys = TrustedKeys::Read(pem);
  EXPECT_TRUE(keys.ok()) << keys.status().message();
  return std::move(*keys);
}

TEST_F(PackageModelTest, RefusesThreadsAndSlotsOutOfRange) {
  Builder().Write(folder_.path());
  const auto refusal = [this](const ModelOptions& options) {
    const Status status = LoadPackageModel(folder_.path(), options).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  ModelOptions options;
  options.threads = -1;
  EXPECT_EQ(refusal(options), "threads: expected 0..1024, got -1");
  options.threads = 1025;
  EXPECT_EQ(refusal(options), "threads: expected 0..1024, got 1025");
  options.threads = 1;
  options.slots = -1;
  EXPECT_EQ(refusal(options), "slots: expected 0..1024, got -1");
  options.slots = 100000;
  EXPECT_EQ(refusal(options), "slots: expected 0..1024, got 100000");
}

class PackageModelProgramTest : public PackageModelTest,
                                public ::testing::WithParamInterface<bool> {};

TEST_P(PackageModelProgramTest, ProgramThatChangedSinceItWasHashedIsRefused) {
  const std::filesystem::path version = folder_.path() / "1";
  std::filesystem::create_directory(version);
  Builder().Write(version);
  PackageOptions options;
  if (GetParam()) options.trusted = SignWithNewKey(version);
  Result<std::unique_ptr<Package>> package = Package::Open(version, options);
  ASSERT_TRUE(package.ok()) << package.status().message();
  // Another program of the same shape, written by somebody with access to the repository.
  std::ofstream(version / "programs/dense.pt", std::ios::binary)
      << testing::ReadTestProgram("throws_at_ninety_nine");
  const auto model = MakePackageModel(std::move(*package), ModelOptions());
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kBadPackage);
  EXPECT_TRUE(model.status().message().starts_with("programs/dense.pt: "))
      << model.status().message();
}

INSTANTIATE_TEST_SUITE_P(UnsignedAndSigned, PackageModelProgramTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Signed" : "Unsigned"; });

}  // namespace
}  // namespace embershard
