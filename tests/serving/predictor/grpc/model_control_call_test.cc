#include "grpc/open_inference/model_control_call.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "testing/wait_for.h"
#include "torchrec/predictor.grpc.pb.h"

namespace embershard::rpc {
namespace {

struct Order {
  ModelControl::Done done;
  ModelControl::Abandoned abandoned;
};

// A service whose one method sends a request to the test.
class Orders final
    : public predictor::Predictor::WithRawCallbackMethod_Predict<predictor::Predictor::Service> {
 public:
  OpenCalls calls;
  std::promise<Order> given;

  grpc::ServerUnaryReactor* Predict(grpc::CallbackServerContext* context, const grpc::ByteBuffer*,
                                    grpc::ByteBuffer* answer) override {
    const grpc::Slice nothing;
    *answer = grpc::ByteBuffer(&nothing, 1);
    return ModelControlCall::Start(
        context, &calls, [this](ModelControl::Done done, ModelControl::Abandoned abandoned) {
          given.set_value({.done = std::move(done), .abandoned = std::move(abandoned)});
        });
  }
};

class ModelControlCallTest : public ::testing::Test {
 protected:
  ModelControlCallTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&orders_);
    server_ = builder.BuildAndStart();
    stub_ = predictor::Predictor::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                                                              grpc::InsecureChannelCredentials()));
  }

  ~ModelControlCallTest() override { server_->Shutdown(); }

  // Sends a call, and returns the order that it became.
  Order Send(std::chrono::seconds timeout = std::chrono::seconds(30)) {
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
    stub_->async()->Predict(&context_, &request_, &response_,
                            [this](grpc::Status status) { ended_.set_value(std::move(status)); });
    std::future<Order> given = orders_.given.get_future();
    if (given.wait_for(std::chrono::seconds(30)) == std::future_status::ready) return given.get();
    ADD_FAILURE() << "no order came";
    return {};
  }

  grpc::Status Ended() { return ended_.get_future().get(); }

  Orders orders_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<predictor::Predictor::Stub> stub_;
  grpc::ClientContext context_;
  const predictor::PredictionRequest request_;
  predictor::PredictionResponse response_;
  std::promise<grpc::Status> ended_;
};

TEST_F(ModelControlCallTest, IsAnsweredWithWhatBecameOfItsOrder) {
  const Order order = Send();
  EXPECT_FALSE(order.abandoned());
  order.done({.status = BadPackage("manifest.json: sha256: expected a, got b")});
  const grpc::Status status = Ended();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "manifest.json: sha256: expected a, got b");
}

TEST_F(ModelControlCallTest, IsAnsweredOkWhenItsOrderIsCarriedOut) {
  Send().done({});
  EXPECT_TRUE(Ended().ok());
}

TEST_F(ModelControlCallTest, OneWhoseClientLeavesEndsBeforeItsOrder) {
  const Order order = Send();
  context_.TryCancel();
  EXPECT_EQ(Ended().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(WaitFor(order.abandoned));
  orders_.calls.WaitUntilIdle(Clock::now() + std::chrono::seconds(30));
  order.done({});  // The call is no more.
}

TEST_F(ModelControlCallTest, OneWhoseDeadlinePassesEndsBeforeItsOrder) {
  const Order order = Send(std::chrono::seconds(6));
  EXPECT_EQ(Ended().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(WaitFor(order.abandoned));
  order.done({});
}

TEST_F(ModelControlCallTest, IsRefusedOnceNoneIsTakenAnyMore) {
  orders_.calls.RefuseNew();
  grpc::Status status = stub_->Predict(&context_, request_, &response_);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace embershard::rpc
