#include "grpc/server.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "grpc/connection/credentials.h"
#include "grpc/connection/listener.h"
#include "grpc/connection/open_connections.h"
#include "grpc/embershard/predict_messages.h"
#include "grpc/health/health_service.h"
#include "grpc/open_inference/oip_service.h"
#include "grpc/reflection/reflection_service.h"
#include "grpc/torchrec/torchrec_messages.h"
#include "telemetry/telemetry.h"

namespace embershard::rpc {
namespace {

// Time for the last refusals and health updates to be sent after all requests were answered.
constexpr std::chrono::milliseconds kLastWords{200};

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
using ExternalConnections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;

// Null if calls are not recorded.
Result<std::unique_ptr<Recorder>> OpenRecorder(const ServedModels& served,
                                               const RecorderOptions& options) {
  if (options.path.empty()) return std::unique_ptr<Recorder>();
  const auto engine = served.Find("", 0, "");
  if (!engine.ok()) {
    return NotFound("record: a recording is of one model: ", engine.status().message());
  }
  const Manifest& manifest = (*engine)->manifest();
  return Recorder::Open(
      options,
      {.name = manifest.model, .version = manifest.version, .schema = manifest.schema.fingerprint});
}

}  // namespace

struct Server::State {
  State(std::shared_ptr<ServedModels> models, ModelControl* control, const ServerOptions& options,
        std::unique_ptr<Recorder> recorder, std::unique_ptr<Security> security)
      : served(std::move(models)),
        recorder(std::move(recorder)),
        security(std::move(security)),
        bounds_strangers(this->security->has_token() && !options.connections.behind_proxy),
        connections(options.connections.max_connections, options.connections.report),
        service("embershard.v1.Predictor", served.get(), this->recorder.get(), options,
                Authenticated()),
        oip(served.get(), control, options, Authenticated()),
        torchrec("predictor.Predictor", served.get(), nullptr, options, Authenticated()) {
    service.AddPredict("Predict", Make<PredictMessages>);
    service.AddPredictStream("PredictStream", Make<PredictMessages>);
    service.AddQuestion<v1::GetModelRequest, v1::GetModelResponse>(
        "GetModel",
        [this, max_message_bytes = static_cast<uint64_t>(options.max_message_bytes)](
            const auto& request, auto* response) -> Status {
          const auto engine = served->Find(request.model(), request.version(), request.label());
          if (!engine.ok()) {
            // Clients usually call GetModel first, and send no predictions if it fails.
            served->telemetry().CountArrival();
            served->telemetry().CountEnd({.outcome = OutcomeOf(engine.status())});
            return engine.status();
          }
          DescribeModel((*engine)->manifest(), (*engine)->limits(), max_message_bytes, response);
          return {};
        });
    torchrec.AddPredict("Predict", Make<TorchRecMessages>);
  }

  // Services report authenticated calls to it; null if calls need no token.
  OpenConnections* Authenticated() { return bounds_strangers ? &connections : nullptr; }

  const std::shared_ptr<ServedModels> served;
  const std::unique_ptr<Recorder> recorder;  // Null if calls are not recorded.
  const std::unique_ptr<Security> security;
  const bool bounds_strangers;
  OpenConnections connections;
  PredictService service;  // Implements proto/embershard/v1/predictor.proto.
  OipService oip;
  PredictService torchrec;  // Its calls are not recorded.
  HealthService health;
  ReflectionService reflection{"v1"};
  ReflectionService reflection_v1alpha{"v1alpha"};
  std::once_flag drained;
  std::unique_ptr<grpc::Server> server;  // Destroyed before the services that it calls.
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Listener> listener;  // Last, because it calls the acceptor.
};

Result<std::unique_ptr<Server>> Server::Start(std::shared_ptr<ServedModels> served,
                                              const ServerOptions& options, ModelControl* control) {
  ASSIGN_OR_RETURN(std::unique_ptr<Security> security, Security::Open(options.security));
  ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open(options.host, options.port));
  ASSIGN_OR_RETURN(std::unique_ptr<Recorder> recorder, OpenRecorder(*served, options.record));
  // Builds of Abseil with assertions, such as Debian's, search for cycles whenever gRPC locks a
  // mutex.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto state = std::make_unique<State>(std::move(served), control, options, std::move(recorder),
                                       std::move(security));
  state->listener = std::move(listener);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  Apply(options.connections, &builder);
  // Limits messages that are still arriving; whole messages count in the queue.
  builder.SetResourceQuota(grpc::ResourceQuota().Resize(options.max_receiving_bytes));
  state->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      ExternalConnections::FROM_FD, state->security->Credentials(state->Authenticated()));
  builder.RegisterService(&state->service);
  builder.RegisterService(&state->oip);
  builder.RegisterService(&state->torchrec);
  builder.RegisterService(&state->health);
  if (options.reflection) {
    builder.RegisterService(&state->reflection);
    builder.RegisterService(&state->reflection_v1alpha);
  }
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) return Internal("gRPC does not start a server");
  // In addition to the whole server, which is healthy from its start.
  HealthService* const health = &state->health;
  health->SetServing("embershard.v1.Predictor", true);
  health->SetServing("inference.GRPCInferenceService", true);
  health->SetServing("predictor.Predictor", true);
  // An empty model name means the whole server, here and in the health service.
  state->served->Watch(
      [health](const std::string& model, bool served) { health->SetServing(model, served); });
  const auto take = [acceptor = state->acceptor.get()](int listening, File connection) {
    Acceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listening;
    parameters.fd = connection.Release();
    acceptor->HandleNewConnection(&parameters);
  };
  state->connections.Start(take, state->bounds_strangers);
  state->listener->Start([open = &state->connections](int listening, File connection) {
    open->Admit(listening, std::move(connection), Clock::now());
  });
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() { Drain(std::chrono::milliseconds(0)); }

int Server::port() const { return state_->listener->port(); }

uint64_t Server::connections_refused() const { return state_->connections.refused(); }

uint64_t Server::strangers_reset() const { return state_->connections.strangers_reset(); }

void Server::Drain(std::chrono::milliseconds timeout) {
  std::call_once(state_->drained, [this, timeout] {
    state_->served->Watch(nullptr);
    state_->health.SetNoneServing();
    // While the port is open, the service refuses late calls with a reason. When it closes, gRPC
    // can only cancel them.
    const Clock::time_point deadline = Clock::now() + timeout;
    PredictService* const services[] = {&state_->service, &state_->oip, &state_->torchrec};
    for (PredictService* const each : services) each->RefuseNew();
    for (PredictService* const each : services) each->WaitUntilDone(deadline);
    state_->listener->Stop();
    state_->connections.Stop();
    const auto left = std::min<Clock::duration>(kLastWords, deadline - Clock::now());
    state_->server->Shutdown(std::chrono::system_clock::now() + left);
    if (state_->recorder != nullptr) state_->recorder->Close();
  });
}

RecorderCounts Server::recording() const {
  return state_->recorder != nullptr ? state_->recorder->counts() : RecorderCounts();
}

SecurityCounts Server::security() const { return state_->security->counts(); }

}  // namespace embershard::rpc
