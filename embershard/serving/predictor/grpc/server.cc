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

// For what is on its way out when a draining server has nothing left to answer: refusals,
// and the word to those who watch.
constexpr std::chrono::milliseconds kLastWords{200};

using Acceptor = grpc::experimental::ExternalConnectionAcceptor;
using ExternalConnections = grpc::ServerBuilder::experimental_type::ExternalConnectionType;

// Null where nothing is to be recorded.
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
            // Clients ask this first, and ask no predictions of a model that they cannot find.
            served->telemetry().CountArrival();
            served->telemetry().CountEnd({.outcome = OutcomeOf(engine.status())});
            return engine.status();
          }
          DescribeModel((*engine)->manifest(), (*engine)->limits(), max_message_bytes, response);
          return {};
        });
    torchrec.AddPredict("Predict", Make<TorchRecMessages>);
  }

  // Where services tell of authenticated calls; null if nobody is to know.
  OpenConnections* Authenticated() { return bounds_strangers ? &connections : nullptr; }

  const std::shared_ptr<ServedModels> served;
  const std::unique_ptr<Recorder> recorder;  // Null: nothing is recorded.
  const std::unique_ptr<Security> security;
  const bool bounds_strangers;
  OpenConnections connections;
  PredictService service;  // Of proto/embershard/v1/predictor.proto.
  OipService oip;
  PredictService torchrec;  // Its calls are not recorded.
  HealthService health;
  ReflectionService reflection{"v1"};
  ReflectionService reflection_v1alpha{"v1alpha"};
  std::once_flag drained;
  std::unique_ptr<grpc::Server> server;  // Ends before what it calls.
  std::unique_ptr<Acceptor> acceptor;
  std::unique_ptr<Listener> listener;  // Last: it calls the acceptor.
};

Result<std::unique_ptr<Server>> Server::Start(std::shared_ptr<ServedModels> served,
                                              const ServerOptions& options, ModelControl* control) {
  ASSIGN_OR_RETURN(std::unique_ptr<Security> security, Security::Open(options.security));
  ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Open(options.host, options.port));
  ASSIGN_OR_RETURN(std::unique_ptr<Recorder> recorder, OpenRecorder(*served, options.record));
  // A library of Abseil that was built with assertions, as Debian's is, looks for cycles at each
  // lock that gRPC takes.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto state = std::make_unique<State>(std::move(served), control, options, std::move(recorder),
                                       std::move(security));
  state->listener = std::move(listener);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  Apply(options.connections, &builder);
  // Messages that have arrived whole are counted by the queue.
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
  // Beside the whole server, which is healthy from its start.
  HealthService* const health = &state->health;
  health->SetServing("embershard.v1.Predictor", true);
  health->SetServing("inference.GRPCInferenceService", true);
  health->SetServing("predictor.Predictor", true);
  // An empty model means the whole server to both.
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
    // While the port is open, calls that come too late are told so by the service. In the
    // moment that it closes, gRPC can only tell them CANCELLED.
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
