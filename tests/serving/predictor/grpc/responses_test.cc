#include <gtest/gtest.h>

#include <memory>

#include "batching/fake_model.h"
#include "embershard/v1/predictor.pb.h"
#include "grpc/server.h"

namespace embershard::rpc {
namespace {

TEST(Serialized, DescribesTheModel) {
  auto engine = Engine::Start(std::make_unique<FakeModel>(), {});
  ASSERT_TRUE(engine.ok());
  v1::GetModelResponse model;
  ASSERT_TRUE(model.ParseFromString(GetModelSerialized(**engine)));
  EXPECT_EQ(model.model(), "fake");
  EXPECT_EQ(model.inputs_size(), 8);
}

}  // namespace
}  // namespace embershard::rpc
