// Load and unload requests of clients of the Open Inference Protocol.

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grpc/open_inference/oip_service.h"
#include "grpc/server.h"
#include "inference/open_inference.grpc.pb.h"
#include "registry/fake_source.h"
#include "registry/model_control.h"
#include "testing/wait_for.h"

namespace embershard::rpc {
namespace {

using inference::GRPCInferenceService;

// A load request whose call ends on another thread.
class LoadCall {
 public:
  explicit LoadCall(GRPCInferenceService::Stub* stub) {
    request_.set_model_name("ranker");
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    stub->async()->RepositoryModelLoad(
        &context_, &request_, &response_,
        [this](grpc::Status status) { end_.set_value(std::move(status)); });
  }
  ~LoadCall() { ended_.wait(); }

  void Cancel() { context_.TryCancel(); }
  const grpc::Status& Wait() const { return ended_.get(); }
  bool HasEnded() const {
    return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

 private:
  grpc::ClientContext context_;
  inference::RepositoryModelLoadRequest request_;
  inference::RepositoryModelLoadResponse response_;
  std::promise<grpc::Status> end_;
  const std::shared_future<grpc::Status> ended_ = end_.get_future().share();
};

class OipModelControlTest : public ::testing::Test {
 protected:
  explicit OipModelControlTest(bool model_control = true) {
    auto source = std::make_unique<FakeSource>();
    source_ = source.get();
    control_ =
        std::make_unique<ModelControl>(served_.get(), std::move(source), ModelLoaderOptions());
    const Status loaded = control_->Start();
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    ServerOptions options;
    options.model_control = model_control;
    auto server = Server::Start(served_, options, control_.get());
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    stub_ = GRPCInferenceService::NewStub(grpc::CreateChannel(
        "127.0.0.1:" + std::to_string(server_->port()), grpc::InsecureChannelCredentials()));
  }

  ~OipModelControlTest() override {
    Open();
    control_->Stop();
    EXPECT_TRUE(WaitFor([this] { return control_->hung_loads() == 0; }));
    server_.reset();
    control_.reset();
  }

  // Loads wait until Open() from now on.
  void Close() {
    source_->before_load = [this](auto...) {
      if (is_first_.exchange(false)) running_.set_value();
      opened_.wait();
    };
  }
  void WaitUntilLoading() { running_.get_future().get(); }
  void Open() {
    if (is_closed_.exchange(false)) open_.set_value();
  }

  grpc::Status Load(const char* model, const char* parameter = nullptr) {
    inference::RepositoryModelLoadRequest request;
    inference::RepositoryModelLoadResponse response;
    request.set_model_name(model);
    if (parameter != nullptr) (*request.mutable_parameters())[parameter].set_string_param("{}");
    grpc::ClientContext context;
    return stub_->RepositoryModelLoad(&context, request, &response);
  }

  grpc::Status Unload(const char* model, const char* parameter = nullptr) {
    inference::RepositoryModelUnloadRequest request;
    inference::RepositoryModelUnloadResponse response;
    request.set_model_name(model);
    if (parameter != nullptr) (*request.mutable_parameters())[parameter].set_bool_param(true);
    grpc::ClientContext context;
    return stub_->RepositoryModelUnload(&context, request, &response);
  }

  // Lines such as "ranker 1 UNAVAILABLE (not loaded)".
  std::vector<std::string> Index(bool only_ready = false) {
    inference::RepositoryIndexRequest request;
    inference::RepositoryIndexResponse response;
    request.set_ready(only_ready);
    grpc::ClientContext context;
    const grpc::Status status = stub_->RepositoryIndex(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<std::string> lines;
    for (const auto& model : response.models()) {
      lines.push_back(model.name() + " " + model.version() + " " + model.state() +
                      (model.reason().empty() ? "" : " (" + model.reason() + ")"));
    }
    return lines;
  }

  // Removes the first call that ends from `calls`, and returns its status.
  static grpc::Status Refused(std::vector<std::unique_ptr<LoadCall>>* calls) {
    auto found = calls->end();
    const bool has_ended = WaitFor([&] {
      found = std::ranges::find_if(*calls, [](const auto& call) { return call->HasEnded(); });
      return found != calls->end();
    });
    if (!has_ended) return grpc::Status::OK;
    const grpc::Status status = (*found)->Wait();
    calls->erase(found);
    return status;
  }

  bool IsServed(int64_t version) const { return served_->Find("ranker", version, "").ok(); }

  const std::shared_ptr<ServedModels> served_ = std::make_shared<ServedModels>();
  FakeSource* source_ = nullptr;
  std::unique_ptr<ModelControl> control_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<GRPCInferenceService::Stub> stub_;
  std::atomic<bool> is_first_ = true;
  std::promise<void> running_;
  std::atomic<bool> is_closed_ = true;
  std::promise<void> open_;
  const std::shared_future<void> opened_ = open_.get_future().share();
};

using Lines = std::vector<std::string>;

TEST_F(OipModelControlTest, AModelIsLoadedAndUnloaded) {
  source_->there["ranker"] = {1, 2};
  EXPECT_EQ(Index(), (Lines{"ranker 1 READY", "ranker 2 UNAVAILABLE (not loaded)"}));
  EXPECT_TRUE(Load("ranker").ok());
  EXPECT_EQ(Index(), (Lines{"ranker 1 UNAVAILABLE (not loaded)", "ranker 2 READY"}));
  EXPECT_EQ(Index(/*only_ready=*/true), (Lines{"ranker 2 READY"}));
  EXPECT_TRUE(Unload("ranker", "unload_dependents").ok());
  EXPECT_EQ(Index(/*only_ready=*/true), Lines{});
  EXPECT_EQ(Unload("ranker").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(Load("ranker").ok());
  EXPECT_TRUE(IsServed(2));
}

TEST_F(OipModelControlTest, OneThatFailsIsToldWhyInTheLoadersWords) {
  source_->there["ranker"] = {1, 2};
  source_->broken = {2};
  const grpc::Status status = Load("ranker");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(),
            "model 'ranker' version 2: manifest.json: sha256: expected a, got b; model 'ranker' "
            "version 1 serves on");
  EXPECT_EQ(Index(), (Lines{"ranker 1 READY",
                            "ranker 2 UNAVAILABLE (manifest.json: sha256: expected a, got b)"}));
  EXPECT_EQ(Load("finder").error_message(), "model 'finder' is not in the repository");
}

TEST_F(OipModelControlTest, WhatAnOrderCannotSayIsRefused) {
  EXPECT_EQ(Load("ranker", "config").error_message(),
            "parameter 'config': expected none, since a model's package holds its configuration");
  EXPECT_EQ(Unload("ranker", "config").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  inference::RepositoryModelLoadRequest request;
  inference::RepositoryModelLoadResponse response;
  request.set_repository_name("elsewhere");
  request.set_model_name("ranker");
  grpc::ClientContext context;
  EXPECT_EQ(stub_->RepositoryModelLoad(&context, request, &response).error_message(),
            "repository_name: expected none, since a server has one repository, got 'elsewhere'");
}

TEST_F(OipModelControlTest, AVersionIsLoadingUntilItIsServed) {
  source_->there["ranker"] = {1, 2};
  Close();
  LoadCall call(stub_.get());
  WaitUntilLoading();
  EXPECT_EQ(Index(), (Lines{"ranker 1 READY", "ranker 2 LOADING"}));
  EXPECT_TRUE(IsServed(1));
  Open();
  EXPECT_TRUE(call.Wait().ok());
  EXPECT_TRUE(IsServed(2));
}

TEST_F(OipModelControlTest, AClientThatLeavesEndsItsCallAndTheLoadGoesOn) {
  source_->there["ranker"] = {1, 2};
  Close();
  LoadCall call(stub_.get());
  WaitUntilLoading();
  call.Cancel();
  EXPECT_EQ(call.Wait().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_FALSE(IsServed(2));
  Open();
  EXPECT_TRUE(WaitFor([this] { return IsServed(2); }));
}

TEST_F(OipModelControlTest, AsManyWaitAsThereIsRoomFor) {
  source_->there["ranker"] = {1, 2};
  Close();
  LoadCall first(stub_.get());
  WaitUntilLoading();
  std::vector<std::unique_ptr<LoadCall>> waiting;
  for (size_t i = 0; i <= ModelControl::kOrdersMax; ++i) {
    waiting.push_back(std::make_unique<LoadCall>(stub_.get()));
  }
  // Whichever of them comes last finds no room; the others wait.
  EXPECT_EQ(Refused(&waiting).error_message(), "32 orders are waiting; try again after a pause");
  Open();
  EXPECT_TRUE(first.Wait().ok());
  for (const auto& call : waiting) EXPECT_TRUE(call->Wait().ok());
}

TEST_F(OipModelControlTest, QueuedRequestsAreUnavailableIfTheServerStops) {
  source_->there["ranker"] = {1, 2};
  Close();
  LoadCall first(stub_.get());
  WaitUntilLoading();
  LoadCall second(stub_.get());
  control_->Stop();  // Returns, though the first load does not end.
  EXPECT_EQ(first.Wait().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(second.Wait().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Load("ranker").error_code(), grpc::StatusCode::UNAVAILABLE);
}

class OipOrdersOffTest : public OipModelControlTest {
 protected:
  OipOrdersOffTest() : OipModelControlTest(/*model_control=*/false) {}
};

TEST_F(OipOrdersOffTest, OrdersAreNotTakenUnlessTheServerWasToldSo) {
  source_->there["ranker"] = {1, 2};
  for (const grpc::Status& status : {Load("ranker"), Unload("ranker")}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_EQ(status.error_message(),
              "this server takes no load or unload requests from clients: embershard serve "
              "--model-control has it take them");
  }
  EXPECT_EQ(Index(), (Lines{"ranker 1 READY", "ranker 2 UNAVAILABLE (not loaded)"}));
}

}  // namespace
}  // namespace embershard::rpc
