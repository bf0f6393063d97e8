// The fake model behind a port of its own, and a client for it.

#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "embershard/v1/predictor.grpc.pb.h"
#include "engine/engine.h"
#include "grpc/server.h"
#include "registry/served_models.h"

namespace embershard::rpc {

template <class T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

inline std::vector<float> FloatsOf(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  Unaligned<float>(bytes.data(), values.size()).CopyTo(values.data());
  return values;
}

// GoodInputs() in the named form.
inline v1::PredictRequest NamedMessage() {
  const Manifest manifest = FakeManifest();
  const FakeInputs inputs = GoodInputs();
  v1::PredictRequest message;
  message.set_num_examples(inputs.num_examples);
  for (size_t i = 0; i < inputs.dense.size(); ++i) {
    if (inputs.dense[i].empty()) continue;
    v1::DenseValues* const dense = message.add_dense();
    dense->set_name(manifest.schema.dense[i].name);
    dense->set_values(BytesOf(inputs.dense[i]));
  }
  for (size_t i = 0; i < inputs.sparse.size(); ++i) {
    if (inputs.sparse[i].lengths.empty()) continue;
    v1::SparseValues* const sparse = message.add_sparse();
    sparse->set_name(manifest.schema.sparse[i].name);
    sparse->set_lengths(BytesOf(inputs.sparse[i].lengths));
    sparse->set_values(BytesOf(inputs.sparse[i].values));
    sparse->set_weights(BytesOf(inputs.sparse[i].weights));
  }
  return message;
}

// The same in the packed form.
inline v1::PredictRequest PackedMessage() {
  const SampleRequest sample = GoodSample();
  v1::PredictRequest message;
  message.set_num_examples(sample.num_examples);
  v1::Packed* const packed = message.mutable_packed();
  packed->set_schema(FakeManifest().schema.fingerprint);
  packed->set_request_dense(BytesOf(sample.request_dense));
  packed->set_example_dense(BytesOf(sample.example_dense));
  packed->set_lengths(BytesOf(sample.lengths));
  packed->set_values(BytesOf(sample.values));
  packed->set_weights(BytesOf(sample.weights));
  return message;
}

// The same with so many bytes more, of a field that nobody knows.
inline v1::PredictRequest Swollen(v1::PredictRequest message, size_t bytes) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(900)->assign(bytes,
                                                                                           'x');
  return message;
}

inline void ExpectGood(const grpc::Status& status, const v1::PredictResponse& response) {
  ASSERT_TRUE(status.ok()) << status.error_code() << ": " << status.error_message();
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_EQ(FloatsOf(response.outputs(0).values()), kGoodScores);
  EXPECT_EQ(FloatsOf(response.outputs(1).values()), kGoodProfile);
}

// A model whose runs stand still, after the first has begun, until they are let go.
class Gate {
 public:
  std::unique_ptr<FakeModel> model() {
    auto model = std::make_unique<FakeModel>();
    model->before_run = [this](const Slot&) {
      if (first_.exchange(false)) running_.count_down();
      open_.wait();
      return Status();
    };
    return model;
  }
  void WaitUntilRunning() { running_.wait(); }
  bool IsRunning() const { return running_.try_wait(); }
  void Open() { open_.count_down(); }

 private:
  std::atomic<bool> first_ = true;
  std::latch running_{1};
  std::latch open_{1};
};

// One call that another thread ends.
class Call {
 public:
  Call(v1::Predictor::Stub* stub, v1::PredictRequest message,
       std::chrono::milliseconds timeout = std::chrono::seconds(30))
      : message_(std::move(message)) {
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
    stub->async()->Predict(&context_, &message_, &response_, [this](grpc::Status status) {
      status_ = std::move(status);
      done_.count_down();
    });
  }
  ~Call() { done_.wait(); }

  void Cancel() { context_.TryCancel(); }
  bool Done() const { return done_.try_wait(); }
  const grpc::Status& Wait() {
    done_.wait();
    return status_;
  }
  // REQUIRES: Wait() has returned.
  const v1::PredictResponse& response() const { return response_; }
  const grpc::ClientContext& context() const { return context_; }

 private:
  grpc::ClientContext context_;
  const v1::PredictRequest message_;
  v1::PredictResponse response_;
  grpc::Status status_;
  std::latch done_{1};
};

class Serving {
 public:
  explicit Serving(std::unique_ptr<Model> model = std::make_unique<FakeModel>(),
                   const EngineOptions& engine_options = {}, const ServerOptions& options = {},
                   Clock::duration slow_request = {}) {
    auto started = Engine::Start(std::move(model), engine_options);
    EXPECT_TRUE(started.ok()) << started.status().message();
    served_ = ServedModels::Of(std::move(*started), slow_request);
    engine_ = served_->Engines().front();
    auto server = Server::Start(served_, options);
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    channel_ = NewChannel();
    stub_ = v1::Predictor::NewStub(channel_);
  }

  grpc::Status Predict(const v1::PredictRequest& message, v1::PredictResponse* response) {
    Call call(stub(), message);
    const grpc::Status status = call.Wait();
    *response = call.response();
    return status;
  }

  // A connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                     grpc::InsecureChannelCredentials(), arguments);
  }

  ServedModels* served() { return served_.get(); }
  Engine* engine() { return engine_.get(); }
  Server* server() { return server_.get(); }
  v1::Predictor::Stub* stub() { return stub_.get(); }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }

 private:
  std::shared_ptr<ServedModels> served_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Predictor::Stub> stub_;
};

// Counts of the version, and of calls that reached no version.
inline TelemetrySnapshot Counted(Serving* serving) {
  TelemetrySnapshot all = serving->engine()->telemetry().Read();
  const TelemetrySnapshot others = serving->served()->telemetry().Read();
  for (size_t i = 0; i < kOutcomes; ++i) {
    all.interactive_calls[i] += others.interactive_calls[i];
    all.background_calls[i] += others.background_calls[i];
  }
  all.in_flight += others.in_flight;
  all.open_streams += others.open_streams;
  all.bytes_received += others.bytes_received;
  all.slow_seen += others.slow_seen;
  all.slow_dropped += others.slow_dropped;
  return all;
}

}  // namespace embershard::rpc
