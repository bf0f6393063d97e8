// A Triton server, as far as a backend sees it: the functions of triton/api.h, which do what a
// server's do, and complain (the test fails) of what a server would not survive:
//
//   a request    used after it was released, released without its one final response, or never
//   a response   sent twice, changed after it was sent, or never sent
//   an error     or message deleted twice or never
//
// What has been released is freed, so that AddressSanitizer sees who still reads it.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "triton/api.h"

namespace embershard::triton {

// One output as a client receives it.
struct GotOutput {
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::string bytes;

  std::vector<float> floats() const;
};

// Everything that happened to a request. Outlives the request.
struct Fate {
  int responses = 0;
  bool denied = false;  // ResponseNew failed on purpose, so there is no response.
  int releases = 0;
  int reports = 0;  // Calls of the statistics function.
  bool reported_success = false;
  std::vector<uint64_t> moments;  // The four times of the report.

  bool failed = false;
  TRITONSERVER_Error_Code code = TRITONSERVER_ERROR_UNKNOWN;
  std::string message;
  std::map<std::string, GotOutput> outputs;
  std::map<std::string, int64_t> parameters;
};

// Report of one batch.
struct BatchReport {
  uint64_t size = 0;
  std::vector<uint64_t> moments;
};

}  // namespace embershard::triton

struct TRITONSERVER_Message {
  std::string json;
};

struct TRITONBACKEND_Backend {
  void* state = nullptr;
};

struct TRITONBACKEND_BackendAttribute {
  std::vector<std::pair<TRITONSERVER_InstanceGroupKind, uint64_t>> groups;
};

struct TRITONBACKEND_Model {
  TRITONBACKEND_Backend* backend = nullptr;
  std::string name = "fake";
  uint64_t version = 3;
  std::string folder = "/models/fake";
  std::string config = "{}";
  bool auto_complete = false;
  void* state = nullptr;
};

struct TRITONBACKEND_ModelInstance {
  TRITONBACKEND_Model* model = nullptr;
  TRITONSERVER_InstanceGroupKind kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  void* state = nullptr;
  std::vector<embershard::triton::BatchReport> batches;
};

struct TRITONBACKEND_Input {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::vector<std::string> buffers;
  TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
};

struct TRITONBACKEND_Request {
  using Value = std::variant<std::string, int64_t, bool, double>;

  std::vector<TRITONBACKEND_Input> inputs;
  std::vector<std::string> outputs;
  std::vector<std::pair<std::string, Value>> parameters;
  std::variant<uint64_t, std::string> sequence_id = uint64_t{0};
  uint32_t flags = 0;  // Bits of TRITONSERVER_RequestFlag.
  uint64_t timeout_us = 0;
  std::shared_ptr<bool> is_cancelled = std::make_shared<bool>(false);
  std::shared_ptr<embershard::triton::Fate> fate = std::make_shared<embershard::triton::Fate>();
};

namespace embershard::triton {

// The server's own side. All functions are for one thread at a time.
struct FakeTriton {
  // Number of live objects of each kind. All are 0 at the end of a test.
  static size_t LiveRequests();
  static size_t LiveResponses();
  static size_t LiveErrors();
  static size_t LiveMessages();

  // The version of the API that the server says it has.
  static std::pair<uint32_t, uint32_t> version;

  // `function` of the API, named without its prefix, fails at its `calls`-th call from now on.
  // Empty: none fails.
  static void FailAt(const std::string& function, int calls = 1);

  static const std::vector<std::string>& log();
  static void Reset();

  // Gives `request` to the backend, as the server does before a call of Execute.
  static TRITONBACKEND_Request* Take(TRITONBACKEND_Request request);
  // Takes it back, as where Execute returned an error.
  static void TakeBack(TRITONBACKEND_Request* request);
};

}  // namespace embershard::triton
