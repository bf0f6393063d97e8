// The service of proto/inference/open_inference.proto over the same models and the same life of a
// request as our own.

#pragma once

#include <vector>

#include "base/status.h"
#include "grpc/predict/predict_service.h"
#include "registry/model_control.h"

namespace embershard::rpc {

// From RefuseNew() on it says that it is not ready.
class OipService final : public PredictService {
 public:
  // As PredictService. `control`: what clients ask for the repository, and request loads and
  // unloads of if `options.model_control` says so; null where what is served does not change.
  OipService(ServedModels* served, ModelControl* control, const ServerOptions& options,
             OpenConnections* connections);

 private:
  void AddQuestions();
  void AddModelControl();
  // A method that requests a load or unload by give(model, done, abandoned), and waits for it.
  // `known`: the only parameter that a request may have; empty: none.
  template <class Request, class Response, class Give>
  void AddOrder(const char* method, const char* known, Give give);

  // Every version that is in the repository, and what has become of it; without a control those
  // that are served. Looks at the repository's folders.
  Result<std::vector<ServedVersion>> Index() const;

  ModelControl* const control_;
};

}  // namespace embershard::rpc
