// What serving/server.py and serving/local.py pass: keywords, read one by one into the options
// that they are for.

#pragma once

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <ratio>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/model_loader.h"
#include "grpc/server.h"
#include "model/model.h"

namespace embershard::binding {

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
  rpc::ServerOptions server;
};

// Every keyword is needed, and no other taken: see Keywords.
PredictorArguments PredictorArgumentsFrom(const pybind11::kwargs& given);
ServerArguments ServerArgumentsFrom(const pybind11::kwargs& given);
rpc::SecurityOptions SecurityOptionsFrom(const pybind11::kwargs& given);

// `value`, if it is 0 .. 2147483647; else raises RequestError, which begins with `name`.
double NumberInRange(const std::string& name, double value);

// REQUIRES: the GIL. Everything is raised as Python's TypeError or, of numbers out of range,
// as RequestError; all of it names the keyword.
class Keywords {
 public:
  // `call`: what messages name first.
  Keywords(std::string call, const pybind11::kwargs& given)
      : call_(std::move(call)), given_(given) {}

  // Refuses a keyword that is missing or of a type that is not the field's.
  template <class T>
  void Read(const char* name, T* field) {
    const pybind11::object value = Value(name);
    try {
      *field = value.cast<T>();
    } catch (const pybind11::cast_error&) {
      RefuseType(name, value);
    }
  }

  // A number of such units of time, whole or not, rounded up: 0 .. 2147483647.
  template <class Unit, class Duration>
  void ReadTime(const char* name, Duration* field) {
    *field = std::chrono::ceil<Duration>(std::chrono::duration<double, Unit>(Number(name)));
  }

  // Refuses a keyword that nobody has read.
  void CheckAllRead() const;

 private:
  pybind11::object Value(const char* name);
  double Number(const char* name) {
    double value = 0;
    Read(name, &value);
    return NumberInRange(name, value);
  }
  [[noreturn]] void RefuseType(const char* name, const pybind11::object& value) const;

  const std::string call_;
  const pybind11::kwargs given_;
  std::vector<std::string> read_;
};

}  // namespace embershard::binding
