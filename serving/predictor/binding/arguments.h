// What serving/server.py and serving/local.py pass, as options of the rooms below.

#ifndef EMBERSHARD_BINDING_ARGUMENTS_H_
#define EMBERSHARD_BINDING_ARGUMENTS_H_

#include <pybind11/pybind11.h>

#include <string>

#include "base/clock.h"
#include "engine/model_loader.h"
#include "grpc/server.h"
#include "model/model.h"

namespace embershard {

struct PredictorArguments {
  std::string folder;
  ModelOptions model;
};

struct ServerArguments {
  std::string repository;
  ModelOptions model;
  ModelLoaderOptions loader;
  Clock::duration slow_request{0};  // As ServedModels takes it, and
  ShadowOptions shadow;             // this,
  TrafficOptions traffic;           // and this.
  GrpcServerOptions server;
};

// Every keyword is needed, and no other taken: see Keywords.
PredictorArguments PredictorArgumentsFrom(const pybind11::kwargs& given);
ServerArguments ServerArgumentsFrom(const pybind11::kwargs& given);
SecurityOptions SecurityOptionsFrom(const pybind11::kwargs& given);

}  // namespace embershard

#endif  // EMBERSHARD_BINDING_ARGUMENTS_H_
