// The minimal C++ gRPC server: answers zeros in a PredictResponse of the same size as ours.
//
//   echo_server MODEL OUTPUT...
//
// Uses the async API with one completion queue and one thread for each core. Answers contain the
// model's name MODEL and each OUTPUT with one value per example. Serves until SIGTERM or SIGINT.

#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "benchmarks/cpp/serving.h"
#include "embershard/v1/predictor.grpc.pb.h"

namespace embershard::benchmarks {
namespace {

// Limit for each completion queue.
constexpr int kCallsPerQueue = 256;

struct AnswerFields {
  std::string model;
  std::vector<std::string> outputs;
};

void FillAnswer(const v1::PredictRequest& request, const AnswerFields& fields,
                v1::PredictResponse* response) {
  response->set_model(fields.model);
  response->set_version(1);
  response->set_request_id(request.request_id());
  for (const std::string& name : fields.outputs) {
    v1::Output* const output = response->add_outputs();
    output->set_name(name);
    output->mutable_values()->resize(request.num_examples() * sizeof(float));
    output->add_shape(request.num_examples());
  }
  v1::Timing* const timing = response->mutable_timing();
  timing->set_queue_us(100);  // Typical times, which determine the number of bytes.
  timing->set_lookup_us(100);
  timing->set_dense_us(100);
  timing->set_total_us(300);
}

// One call of the async API, reused for the next client.
class AsyncCall {
 public:
  AsyncCall(v1::Predictor::AsyncService* service, grpc::ServerCompletionQueue* queue,
            const AnswerFields* fields)
      : service_(service), queue_(queue), fields_(fields) {
    Await();
  }

  // `ok` is true if the last operation succeeded.
  void Proceed(bool ok) {
    if (answering_) return Await();
    if (!ok) return;  // The server shuts down.
    answering_ = true;
    FillAnswer(state_->request, *fields_, &state_->response);
    state_->writer.Finish(state_->response, grpc::Status::OK, this);
  }

 private:
  // State of a client's call, since gRPC needs a new one for each.
  struct State {
    grpc::ServerContext context;
    v1::PredictRequest request;
    v1::PredictResponse response;
    grpc::ServerAsyncResponseWriter<v1::PredictResponse> writer{&context};
  };

  void Await() {
    answering_ = false;
    state_ = std::make_unique<State>();
    service_->RequestPredict(&state_->context, &state_->request, &state_->writer, queue_, queue_,
                             this);
  }

  v1::Predictor::AsyncService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  const AnswerFields* const fields_;
  std::unique_ptr<State> state_;
  bool answering_ = false;
};

void ServeQueue(v1::Predictor::AsyncService* service, grpc::ServerCompletionQueue* queue,
                const AnswerFields* fields) {
  std::vector<std::unique_ptr<AsyncCall>> calls;
  for (int i = 0; i < kCallsPerQueue; ++i) {
    calls.push_back(std::make_unique<AsyncCall>(service, queue, fields));
  }
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) static_cast<AsyncCall*>(tag)->Proceed(ok);
}

int Run(const StopSignals& stop, const AnswerFields& fields) {
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(64 << 20);
  v1::Predictor::AsyncService service;
  builder.RegisterService(&service);
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (unsigned core = 0; core < std::thread::hardware_concurrency(); ++core) {
    queues.push_back(builder.AddCompletionQueue());
  }
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return EXIT_FAILURE;
  std::vector<std::thread> threads;
  for (const auto& queue : queues) {
    threads.emplace_back(ServeQueue, &service, queue.get(), &fields);
  }
  stop.ServeUntilOne(port);
  // Exit without ending the waiting calls, which would race with threads that request the next one.
  std::fflush(stdout);
  std::_Exit(EXIT_SUCCESS);
}

int Main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: echo_server MODEL OUTPUT...\n");
    return EXIT_FAILURE;
  }
  const StopSignals stop;
  return Run(stop, {.model = arguments[1], .outputs = {arguments + 2, arguments + count}});
}

}  // namespace
}  // namespace embershard::benchmarks

int main(int count, char** arguments) { return embershard::benchmarks::Main(count, arguments); }
