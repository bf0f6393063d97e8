#include <gtest/gtest.h>

#include "batching/fake_model.h"
#include "embershard/v1/predictor.pb.h"
#include "grpc/server.h"

namespace embershard::rpc {
namespace {

TEST(Serialized, DescribesTheModel) {
  const Manifest manifest = FakeManifest();
  v1::GetModelResponse model;
  ASSERT_TRUE(model.ParseFromString(GetModelSerialized(manifest, manifest.limits)));
  EXPECT_EQ(model.model(), "fake");
  EXPECT_EQ(model.inputs_size(), 8);
}

}  // namespace
}  // namespace embershard::rpc
