#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "grpc/predict/predict_handler.h"
#include "grpc/predict/raw_service.h"
#include "grpc/recorder.h"
#include "grpc/server.h"
#include "grpc/status_map.h"
#include "registry/served_models.h"

namespace embershard::rpc {

// Base of the prediction services of all protocols. Handlers run on gRPC's threads and never wait
// for the model. A call ends when its request is answered, at the latest at its deadline or when
// its client leaves. Its messages live until the model has finished with them.
class PredictService : public RawService {
 public:
  // Does not own `served` and `recorder` (which may be null); both must outlive this object.
  PredictService(const std::string& name, ServedModels* served, Recorder* recorder,
                 const ServerOptions& options, OpenConnections* connections);
  ~PredictService() override;

  // Adds a method; answer(request, response) fills the response and returns a Status.
  template <class Request, class Response, class Answer>
  void AddQuestion(const std::string& method, Answer answer) {
    AddParsed<Request>(
        method,
        [answer](Context*, const Request& request, Bytes* bytes, Status* status) -> UnaryReactor* {
          Response response;
          *status = answer(request, &response);
          if (status->ok()) *bytes = WriteMessage(response);
          return nullptr;
        });
  }
  // Add a method with one prediction per call, and one with a stream of predictions (at most one).
  void AddPredict(const std::string& method, MakeMessages make_messages);
  void AddPredictStream(const std::string& method, MakeMessages make_messages);

  // Answers every further prediction UNAVAILABLE; streams read nothing more.
  void RefuseNew();
  // Waits for earlier calls. Calls whose message never arrives, or is too large, are not counted.
  void WaitUntilDone(Clock::time_point deadline);

 protected:
  // Adds a method that is not a prediction. Bytes that are no message get an error; messages that
  // would take far more memory than their bytes are not parsed.
  // handle(context, request, bytes, status) returns the call's reactor, or null to end the call
  // with `status` at once.
  template <class Request, class Handle>
  void AddParsed(const std::string& method, Handle handle) {
    AddUnary(method, [this, handle](Context* context, const Bytes* message, Bytes* bytes) {
      UnaryReactor* reactor = nullptr;
      const Status status = Guarded("the call failed: ", [&] {
        handler_.SetAuthenticated(*context);
        Request request;
        // gRPC owns the message, which is not really const.
        Status parsed = ParseMessage(const_cast<Bytes*>(message), &request);
        if (parsed.ok()) reactor = handle(context, request, bytes, &parsed);
        return parsed;
      });
      return reactor != nullptr ? reactor : EndNow(context, ToGrpcStatus(status));
    });
  }

  ServedModels* const served_;
  const ServerOptions options_;
  OpenCalls calls_;

 private:
  class Streams;

  const PredictHandler handler_;
  std::unique_ptr<Streams> streams_;  // Null without a streaming method.
};

}  // namespace embershard::rpc
