#include "triton/fake_triton.h"

#include <gtest/gtest.h>

#include <cstring>
#include <unordered_set>

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};

struct TRITONBACKEND_Output {
  embershard::triton::GotOutput got;
};

struct TRITONBACKEND_Response {
  std::shared_ptr<embershard::triton::Fate> fate;
  std::map<std::string, TRITONBACKEND_Output> outputs;
  std::map<std::string, int64_t> parameters;
};

namespace embershard::triton {
namespace {

// Objects of one kind that were made and not deleted yet.
template <class T>
class Living {
 public:
  T* Add(T value) { return *living_.insert(new T(std::move(value))).first; }
  bool Has(const T* one) const { return living_.contains(const_cast<T*>(one)); }
  // Fails the test if the object is not alive.
  void End(T* one, const char* what) {
    if (living_.erase(one) == 0) {
      ADD_FAILURE() << what << " of what does not live";
      return;
    }
    delete one;
  }
  size_t size() const { return living_.size(); }

 private:
  std::unordered_set<T*> living_;
};

struct Server {
  Living<TRITONBACKEND_Request> requests;
  Living<TRITONBACKEND_Response> responses;
  Living<TRITONSERVER_Error> errors;
  Living<TRITONSERVER_Message> messages;
  std::vector<std::string> log;
  std::string failing;
  int calls_left = 0;
};

Server& TheServer() {
  static Server server;
  return server;
}

TRITONSERVER_Error* Fail(TRITONSERVER_Error_Code code, const std::string& message) {
  return TheServer().errors.Add({code, message});
}

// The error that a test has asked for.
TRITONSERVER_Error* AskedFailure(const char* function) {
  Server& server = TheServer();
  if (server.failing != function || --server.calls_left != 0) return nullptr;
  return Fail(TRITONSERVER_ERROR_UNAVAILABLE, std::string(function) + " was asked to fail");
}

TRITONSERVER_Error* CheckLives(const TRITONBACKEND_Request* request, const char* function) {
  if (TheServer().requests.Has(request)) return AskedFailure(function);
  ADD_FAILURE() << function << " of a request that does not live";
  return Fail(TRITONSERVER_ERROR_INTERNAL, "no such request");
}

TRITONSERVER_Error* CheckLives(const TRITONBACKEND_Response* response, const char* function) {
  if (TheServer().responses.Has(response)) return AskedFailure(function);
  ADD_FAILURE() << function << " of a response that does not live";
  return Fail(TRITONSERVER_ERROR_INTERNAL, "no such response");
}

// The index-th of `list`, through `out`.
template <class T, class Out, class Get>
TRITONSERVER_Error* ByIndex(std::vector<T>& list, uint32_t index, Out* out, Get get) {
  if (index >= list.size()) return Fail(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds");
  *out = get(list[index]);
  return nullptr;
}

}  // namespace

std::vector<float> GotOutput::floats() const {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::pair<uint32_t, uint32_t> FakeTriton::version = {1, 19};

size_t FakeTriton::LiveRequests() { return TheServer().requests.size(); }
size_t FakeTriton::LiveResponses() { return TheServer().responses.size(); }
size_t FakeTriton::LiveErrors() { return TheServer().errors.size(); }
size_t FakeTriton::LiveMessages() { return TheServer().messages.size(); }

void FakeTriton::FailAt(const std::string& function, int calls) {
  TheServer().failing = function;
  TheServer().calls_left = calls;
}

const std::vector<std::string>& FakeTriton::log() { return TheServer().log; }

void FakeTriton::Reset() {
  TheServer().log.clear();
  TheServer().failing.clear();
  version = {1, 19};
}

TRITONBACKEND_Request* FakeTriton::Take(TRITONBACKEND_Request request) {
  return TheServer().requests.Add(std::move(request));
}

void FakeTriton::TakeBack(TRITONBACKEND_Request* request) {
  TheServer().requests.End(request, "TakeBack");
}

}  // namespace embershard::triton

using embershard::triton::AskedFailure;
using embershard::triton::ByIndex;
using embershard::triton::CheckLives;
using embershard::triton::Fail;
using embershard::triton::FakeTriton;
using embershard::triton::TheServer;

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message) {
  return Fail(code, message);
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) {
  TheServer().errors.End(error, "ErrorDelete");
}

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }

const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype) {
  switch (datatype) {
    case TRITONSERVER_TYPE_INT32:
      return "INT32";
    case TRITONSERVER_TYPE_INT64:
      return "INT64";
    case TRITONSERVER_TYPE_FP32:
      return "FP32";
    case TRITONSERVER_TYPE_INVALID:
      break;
  }
  return "<invalid>";
}

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(TRITONSERVER_Message** message,
                                                              const char* json, size_t bytes) {
  *message = TheServer().messages.Add({std::string(json, bytes)});
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(TRITONSERVER_Message* message,
                                                        const char** json, size_t* bytes) {
  *json = message->json.data();
  *bytes = message->json.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  TheServer().messages.End(message, "MessageDelete");
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_LogMessage(TRITONSERVER_LogLevel, const char*, int,
                                            const char* message) {
  TheServer().log.emplace_back(message);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = FakeTriton::version.first;
  *minor = FakeTriton::version.second;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendState(TRITONBACKEND_Backend* backend, void** state) {
  *state = backend->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend* backend, void* state) {
  backend->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute* attributes, TRITONSERVER_InstanceGroupKind kind, uint64_t count,
    const uint64_t*, uint64_t) {
  attributes->groups.emplace_back(kind, count);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  *name = model->name.c_str();
  return AskedFailure("ModelName");
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  *version = model->version;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* artifact,
                                                  const char** location) {
  *artifact = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = model->folder.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, uint32_t config_version,
                                              TRITONSERVER_Message** config) {
  if (config_version != 1) return Fail(TRITONSERVER_ERROR_INVALID_ARG, "no such version");
  *config = TheServer().messages.Add({model->config});
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model,
                                                          bool* auto_complete) {
  *auto_complete = model->auto_complete;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, uint32_t,
                                                 TRITONSERVER_Message* config) {
  model->config = config->json;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model,
                                               TRITONBACKEND_Backend** backend) {
  *backend = model->backend;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  *state = model->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  if (TRITONSERVER_Error* const error = AskedFailure("ModelSetState")) return error;
  model->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
  *kind = instance->kind;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  *model = instance->model;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance,
                                                     void** state) {
  *state = instance->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance,
                                                        void* state) {
  instance->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance*, TRITONBACKEND_Request* request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns,
    uint64_t exec_end_ns) {
  if (auto* const error = CheckLives(request, "ReportStatistics")) return error;
  ++request->fate->reports;
  request->fate->reported_success = success;
  request->fate->moments = {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns};
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch_size, uint64_t exec_start_ns,
    uint64_t compute_start_ns, uint64_t compute_end_ns, uint64_t exec_end_ns) {
  instance->batches.push_back(
      {batch_size, {exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns}});
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request,
                                                    uint32_t* count) {
  if (auto* const error = CheckLives(request, "RequestInputCount")) return error;
  *count = static_cast<uint32_t>(request->inputs.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      uint32_t index, TRITONBACKEND_Input** input) {
  if (auto* const error = CheckLives(request, "RequestInputByIndex")) return error;
  return ByIndex(request->inputs, index, input, [](TRITONBACKEND_Input& one) { return &one; });
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* dims_count,
                                                  uint64_t* byte_size, uint32_t* buffer_count) {
  *name = input->name.c_str();
  *datatype = input->datatype;
  *shape = input->shape.data();
  *dims_count = static_cast<uint32_t>(input->shape.size());
  *byte_size = 0;
  for (const std::string& buffer : input->buffers) *byte_size += buffer.size();
  *buffer_count = static_cast<uint32_t>(input->buffers.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t index,
                                              const void** buffer, uint64_t* buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) {
  if (auto* const error = AskedFailure("InputBuffer")) return error;
  if (index >= input->buffers.size()) return Fail(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds");
  *buffer = input->buffers[index].data();
  *buffer_byte_size = input->buffers[index].size();
  *memory_type = input->memory;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request,
                                                     uint32_t* count) {
  if (auto* const error = CheckLives(request, "RequestOutputCount")) return error;
  *count = static_cast<uint32_t>(request->outputs.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index,
                                                    const char** name) {
  if (auto* const error = CheckLives(request, "RequestOutputName")) return error;
  return ByIndex(request->outputs, index, name, [](std::string& one) { return one.c_str(); });
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request,
                                                        uint32_t* count) {
  if (auto* const error = CheckLives(request, "RequestParameterCount")) return error;
  *count = static_cast<uint32_t>(request->parameters.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request, uint32_t index,
                                                   const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** value) {
  if (auto* const error = CheckLives(request, "RequestParameter")) return error;
  if (index >= request->parameters.size()) {
    return Fail(TRITONSERVER_ERROR_INVALID_ARG, "out of bounds");
  }
  const auto& [name, held] = request->parameters[index];
  *key = name.c_str();
  *type = static_cast<TRITONSERVER_ParameterType>(held.index());
  *value = std::visit([](const auto& one) { return static_cast<const void*>(&one); }, held);
  if (const auto* const text = std::get_if<std::string>(&held)) *value = text->c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request* request,
                                                       uint64_t* id) {
  if (auto* const error = CheckLives(request, "RequestCorrelationId")) return error;
  const auto* const number = std::get_if<uint64_t>(&request->sequence_id);
  if (number == nullptr) return Fail(TRITONSERVER_ERROR_INVALID_ARG, "not an unsigned integer");
  *id = *number;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestFlags(TRITONBACKEND_Request* request, uint32_t* flags) {
  if (auto* const error = CheckLives(request, "RequestFlags")) return error;
  *flags = request->flags;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request* request, uint64_t* timeout) {
  if (auto* const error = CheckLives(request, "InferenceRequestTimeoutMicroseconds")) return error;
  *timeout = request->timeout_us;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request,
                                                     bool* is_cancelled) {
  if (auto* const error = CheckLives(request, "RequestIsCancelled")) return error;
  *is_cancelled = *request->is_cancelled;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request,
                                                 uint32_t release_flags) {
  if (auto* const error = CheckLives(request, "RequestRelease")) return error;
  EXPECT_EQ(release_flags, uint32_t{TRITONSERVER_REQUEST_RELEASE_ALL});
  EXPECT_TRUE(request->fate->responses == 1 || request->fate->denied) << "released unanswered";
  ++request->fate->releases;
  TheServer().requests.End(request, "RequestRelease");
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) {
  if (auto* const error = CheckLives(request, "ResponseNew")) {
    request->fate->denied = true;
    return error;
  }
  *response = TheServer().responses.Add({request->fate, {}, {}});
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(TRITONBACKEND_Response* response,
                                                          const char* name, int64_t value) {
  if (auto* const error = CheckLives(response, "ResponseSetIntParameter")) return error;
  response->parameters[name] = value;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 TRITONSERVER_DataType datatype,
                                                 const int64_t* shape, uint32_t dims_count) {
  if (auto* const error = CheckLives(response, "ResponseOutput")) return error;
  EXPECT_FALSE(response->outputs.contains(name)) << name;
  *output = &response->outputs[name];
  (*output)->got.datatype = datatype;
  (*output)->got.shape.assign(shape, shape + dims_count);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               uint64_t buffer_byte_size,
                                               TRITONSERVER_MemoryType* memory_type,
                                               int64_t* memory_type_id) {
  if (auto* const error = AskedFailure("OutputBuffer")) return error;
  output->got.bytes.assign(buffer_byte_size, '\xff');  // Bytes that are not written read as NaN.
  *buffer = buffer_byte_size == 0 ? nullptr : output->got.bytes.data();
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               uint32_t send_flags, TRITONSERVER_Error* error) {
  if (!TheServer().responses.Has(response)) {
    ADD_FAILURE() << "ResponseSend of a response that does not live";
    return Fail(TRITONSERVER_ERROR_INTERNAL, "no such response");
  }
  embershard::triton::Fate& fate = *response->fate;
  EXPECT_EQ(send_flags, uint32_t{TRITONSERVER_RESPONSE_COMPLETE_FINAL});
  EXPECT_EQ(fate.releases, 0) << "a response after its request was released";
  EXPECT_EQ(fate.responses, 0) << "a second final response";
  ++fate.responses;
  fate.failed = error != nullptr;
  if (error != nullptr) {
    fate.code = error->code;
    fate.message = error->message;
  } else {
    for (auto& [name, output] : response->outputs) fate.outputs[name] = std::move(output.got);
    fate.parameters = response->parameters;
  }
  TheServer().responses.End(response, "ResponseSend");
  return AskedFailure("ResponseSend");
}
