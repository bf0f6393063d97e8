// Serves the same models in the same way as embershard's own service.

#pragma once

#include <vector>

#include "base/status.h"
#include "grpc/predict/predict_service.h"
#include "registry/model_control.h"

namespace embershard::rpc {

// After RefuseNew() the service reports that it is not ready.
class OipService final : public PredictService {
 public:
  // See PredictService. `control` answers questions about the repository, and takes load and unload
  // requests if `options.model_control` is set. Null if the served models never change.
  OipService(ServedModels* served, ModelControl* control, const ServerOptions& options,
             OpenConnections* connections);

 private:
  void AddQuestions();
  void AddModelControl();
  // Adds a method that requests a load or unload by calling give(model, done, abandoned), and waits
  // for it. `known`: the only parameter that a request may have; empty if it may have none.
  template <class Request, class Response, class Give>
  void AddOrder(const char* method, const char* known, Give give);

  // All versions in the repository's folders. Without a control, the served versions.
  Result<std::vector<ServedVersion>> Index() const;

  ModelControl* const control_;
};

}  // namespace embershard::rpc
