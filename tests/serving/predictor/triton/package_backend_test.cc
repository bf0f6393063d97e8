// The backend as Triton loads it: with packages from a folder, and dense programs that torch runs.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/core_count.h"
#include "testing/package_builder.h"
#include "testing/paths.h"
#include "testing/scratch_folder.h"
#include "testing/test_table.h"
#include "triton/backend_fixture.h"

namespace embershard::triton {
namespace {

using testing::MakeTable;
using testing::PackageBuilder;
using testing::ScratchFolder;
using testing::TestTable;

std::string ReadProgram(const std::string& name) {
  std::ifstream file(testing::TestPrograms() / (name + ".pt"), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A package around ../make_test_program.py's program `sound`.
class PackageBackendTest : public BackendTest {
 protected:
  PackageBackendTest() {
    ExpectOk(TRITONBACKEND_Initialize(&loaded_));
    model_.backend = &loaded_;
    model_.name = "test";
    model_.version = 1;
    model_.folder = (folder_.path() / "test").string();
    Write("sound");
  }
  ~PackageBackendTest() override { ExpectOk(TRITONBACKEND_Finalize(&loaded_)); }

  void Write(const std::string& program) {
    const std::filesystem::path folder = folder_.path() / "test" / "1";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    PackageBuilder builder;
    builder.AddTable(users_);
    builder.AddTable(items_);
    builder.AddDense("age", Scope::kRequest);
    builder.AddDense("price", Scope::kExample);
    builder.AddSparse("user", Scope::kRequest, false, {{.table = "users"}});
    builder.AddSparse("item", Scope::kExample, true, {{.table = "items"}});
    builder.AddOutput("score", Scope::kExample, {});
    builder.AddOutput("pair", Scope::kExample, {2});
    builder.AddOutput("user", Scope::kRequest, {4});
    builder.SetProgram(ReadProgram(program));
    builder.Write(folder);
  }

  // A request of two examples: user 3, items 4 and 5 weighted by 2.
  static TRITONBACKEND_Request AskedRequest(float price = 1) {
    TRITONBACKEND_Request request;
    request.outputs = {"score", "pair", "user"};
    AddInput(&request, "age", std::vector<float>{100});
    AddInput(&request, "price", std::vector<float>{price, 2});
    AddInput(&request, "user.values", std::vector<int64_t>{3});
    AddInput(&request, "user.lengths", std::vector<int32_t>{1});
    AddInput(&request, "item.values", std::vector<int64_t>{4, 5});
    AddInput(&request, "item.lengths", std::vector<int32_t>{1, 1});
    AddInput(&request, "item.weights", std::vector<float>{2, 2});
    return request;
  }

  void ExpectScores(const Fate& fate) const {
    ASSERT_FALSE(fate.failed) << fate.message;
    const std::vector<float> scores = fate.outputs.at("score").floats();
    ASSERT_EQ(scores.size(), 2U);
    const double user = 100 + Sum(users_, 3);
    EXPECT_NEAR(scores[0], user + 10 + 2 * Sum(items_, 4), 1e-4);
    EXPECT_NEAR(scores[1], user + 20 + 2 * Sum(items_, 5), 1e-4);
    EXPECT_EQ(fate.outputs.at("pair").floats()[0], static_cast<float>(2 * items_.row(4)[0]));
    EXPECT_EQ(fate.outputs.at("pair").shape, (std::vector<int64_t>{1, 2, 2}));
    EXPECT_EQ(fate.outputs.at("user").floats()[0], static_cast<float>(2 * users_.row(3)[0]));
    EXPECT_EQ(fate.outputs.at("user").shape, (std::vector<int64_t>{1, 1, 4}));
  }

  static double Sum(const TestTable& table, int64_t row) {
    const double* values = table.row(row);
    return values[0] + values[1] + values[2] + values[3];
  }

  const TestTable users_ = MakeTable("users", WeightType::kInt8, 10, 4, 1);
  const TestTable items_ = MakeTable("items", WeightType::kFp16, 20, 4, 2);
  const ScratchFolder folder_;
  TRITONBACKEND_Backend loaded_;
};

TEST_F(PackageBackendTest, APackageIsServed) {
  Start(Parameter("threads", "1"));
  for (const Fate& fate : Execute({AskedRequest(), AskedRequest()})) ExpectScores(fate);
  EXPECT_EQ(instance_.batches.size(), 1U);
}

TEST_F(PackageBackendTest, InstancesShareAPackageWhoseFilesMayGo) {
  Start(Parameter("threads", "1") + "," + Parameter("tables", "resident"));
  TRITONBACKEND_ModelInstance second;
  second.model = &model_;
  ExpectOk(TRITONBACKEND_ModelInstanceInitialize(&second));
  std::filesystem::remove_all(folder_.path() / "test" / "1" / "tables");
  ExpectScores(Execute(AskedRequest()));
  std::swap(instance_, second);
  ExpectScores(Execute(AskedRequest()));
  ExpectOk(TRITONBACKEND_ModelInstanceFinalize(&second));
  ExpectScores(Execute(AskedRequest()));
}

TEST_F(PackageBackendTest, AProgramThatThrowsFailsTheRequestForWhichItDoes) {
  Write("throws_at_ninety_nine");
  model_.config = "{}";
  Start(Parameter("threads", "1"));
  const std::vector<Fate> fates = Execute({AskedRequest(), AskedRequest(99), AskedRequest()});
  EXPECT_FALSE(fates[0].failed);
  EXPECT_TRUE(fates[1].failed);
  EXPECT_EQ(fates[1].code, TRITONSERVER_ERROR_INTERNAL);
  EXPECT_NE(fates[1].message.find("ninety-nine"), std::string::npos) << fates[1].message;
  EXPECT_FALSE(fates[2].failed);
}

TEST_F(PackageBackendTest, ADamagedPackageIsRefused) {
  std::ofstream(folder_.path() / "test" / "1" / "programs" / "dense.pt", std::ios::app) << "x";
  model_.config = "{}";
  const std::string message = Taken(TRITONBACKEND_ModelInitialize(&model_));
  EXPECT_TRUE(message.starts_with("programs/dense.pt: bytes: expected ")) << message;
}

TEST_F(PackageBackendTest, APlanThatIsNotThereIsRefused) {
  model_.config = R"({"parameters": {)" + Parameter("plan", "eight") + "}}";
  const std::string message = Taken(TRITONBACKEND_ModelInitialize(&model_));
  EXPECT_NE(message.find("'eight'"), std::string::npos) << message;
}

TEST_F(PackageBackendTest, IsLoadedAndUnloadedAgainAndAgain) {
  for (int i = 0; i < 5; ++i) {
    Start(Parameter("threads", "1"));
    ExpectScores(Execute(AskedRequest()));
    ExpectOk(TRITONBACKEND_ModelInstanceFinalize(&instance_));
    ExpectOk(TRITONBACKEND_ModelFinalize(&model_));
    instance_.state = nullptr;
    model_.state = nullptr;
  }
}

TEST(Initialize, AServerOfAnOlderApiIsRefused) {
  const auto said = [](uint32_t major, uint32_t minor) {
    FakeTriton::version = {major, minor};
    TRITONBACKEND_Backend backend;
    TRITONSERVER_Error* const error = TRITONBACKEND_Initialize(&backend);
    std::string message = error == nullptr ? "" : TRITONSERVER_ErrorMessage(error);
    if (error != nullptr) TRITONSERVER_ErrorDelete(error);
    EXPECT_EQ(TRITONBACKEND_Finalize(&backend), nullptr);
    FakeTriton::Reset();
    return message;
  };
  EXPECT_EQ(said(1, 18),
            "Triton's backend API: expected version 1.19 or a later minor one, got 1.18");
  EXPECT_EQ(said(2, 19),
            "Triton's backend API: expected version 1.19 or a later minor one, got 2.19");
  EXPECT_EQ(said(1, 20), "");
}

TEST(Initialize, AsksForOneInstanceForEachCore) {
  TRITONBACKEND_Backend backend;
  TRITONBACKEND_BackendAttribute attributes;
  EXPECT_EQ(TRITONBACKEND_GetBackendAttribute(&backend, &attributes), nullptr);
  ASSERT_EQ(attributes.groups.size(), 1U);
  EXPECT_EQ(attributes.groups[0].first, TRITONSERVER_INSTANCEGROUPKIND_CPU);
  EXPECT_EQ(attributes.groups[0].second, static_cast<uint64_t>(CoreCount()));
}

}  // namespace
}  // namespace embershard::triton
