// What the services of predictions share, whatever protocol their messages are of.

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

// Handlers run on gRPC's threads and never wait for the model. A call is finished when its
// request is answered: at its deadline, and when its client leaves, at the latest. Its messages
// live until then, and until the model has done with them.
//
// WaitUntilDone() waits until gRPC is done with the calls. Calls whose message never
// comes, or is too large, are not counted by anybody.
class PredictService : public RawService {
 public:
  // Owns neither `served` nor `recorder` (null: none), which must outlive it.
  PredictService(const std::string& name, ServedModels* served, Recorder* recorder,
                 const ServerOptions& options, OpenConnections* connections);
  ~PredictService() override;

  // answer(request, response): fills the response, and returns a Status.
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
  // A method that asks for one prediction, and one that asks for many: at most one of these.
  void AddPredict(const std::string& method, MakeMessages make_messages);
  void AddPredictStream(const std::string& method, MakeMessages make_messages);

  // From now on every prediction is answered UNAVAILABLE, and streams read nothing more.
  void RefuseNew();
  // Returns when the calls that had arrived before are done, or at `deadline`.
  void WaitUntilDone(Clock::time_point deadline);

 protected:
  // A method of another kind. What is no message is refused in words, and what would take far more
  // memory than bytes is not parsed.
  // handle(context, request, bytes, status): either gives the reactor of the call or null, and the
  // call ends with the status at once.
  template <class Request, class Handle>
  void AddParsed(const std::string& method, Handle handle) {
    AddUnary(method, [this, handle](Context* context, const Bytes* message, Bytes* bytes) {
      UnaryReactor* reactor = nullptr;
      const Status status = Guarded("the call failed: ", [&] {
        handler_.SetAuthenticated(*context);
        Request request;
        // The message is gRPC's own, and no constant.
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
  std::unique_ptr<Streams> streams_;  // Null: no method is one.
};

}  // namespace embershard::rpc
