#include "grpc/reflection/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <set>
#include <string>
#include <vector>

#include "embershard/v1/predictor.pb.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/predict/wire_messages.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/status_map.h"
#include "inference/open_inference.pb.h"
#include "torchrec/predictor.pb.h"

namespace embershard::rpc {
namespace {

namespace pb = google::protobuf;
using ReflectionRequest = grpc::reflection::v1::ServerReflectionRequest;
using ReflectionResponse = grpc::reflection::v1::ServerReflectionResponse;

// The files that declare this server's services. Each call keeps the linker from dropping the file.
std::vector<const pb::FileDescriptor*> ServedFiles() {
  return {v1::PredictRequest::descriptor()->file(),
          inference::ModelInferRequest::descriptor()->file(),
          predictor::PredictionRequest::descriptor()->file(),
          grpc::health::v1::HealthCheckRequest::descriptor()->file(),
          ReflectionRequest::descriptor()->file()};
}

void ListServices(ReflectionResponse* response) {
  auto* const list = response->mutable_list_services_response();
  for (const pb::FileDescriptor* const file : ServedFiles()) {
    for (int i = 0; i < file->service_count(); ++i) {
      list->add_service()->set_name(file->service(i)->full_name());
    }
  }
}

// Adds `file` and then the files that it imports, each once.
void AddFile(const pb::FileDescriptor* file, std::set<const pb::FileDescriptor*>* added,
             grpc::reflection::v1::FileDescriptorResponse* files) {
  if (!added->insert(file).second) return;
  pb::FileDescriptorProto description;
  file->CopyTo(&description);
  description.SerializeToString(files->add_file_descriptor_proto());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), added, files);
}

void Fail(grpc::StatusCode code, const std::string& message, ReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(message);
}

// Answers with `file`, or with an error if it is null. `what`: the kind and name of the question.
void GiveFile(const pb::FileDescriptor* file, const std::string& what,
              ReflectionResponse* response) {
  if (file == nullptr) return Fail(grpc::NOT_FOUND, what + ": not found", response);
  std::set<const pb::FileDescriptor*> added;
  AddFile(file, &added, response->mutable_file_descriptor_response());
}

void AnswerReflection(const ReflectionRequest& request, ReflectionResponse* response) {
  response->set_valid_host(request.host());
  *response->mutable_original_request() = request;
  const pb::DescriptorPool& pool = *pb::DescriptorPool::generated_pool();
  switch (request.message_request_case()) {
    case ReflectionRequest::kListServices:
      return ListServices(response);
    case ReflectionRequest::kFileByFilename:
      return GiveFile(pool.FindFileByName(request.file_by_filename()),
                      "file '" + request.file_by_filename() + "'", response);
    case ReflectionRequest::kFileContainingSymbol:
      return GiveFile(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                      "symbol '" + request.file_containing_symbol() + "'", response);
    case ReflectionRequest::kFileContainingExtension:
    case ReflectionRequest::kAllExtensionNumbersOfType:
      return Fail(grpc::NOT_FOUND, "no message of this server has extensions", response);
    case ReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      return Fail(grpc::INVALID_ARGUMENT, "message_request: expected one of its fields, got none",
                  response);
  }
}

// A stream. Reads a request, sends its answer, reads the next; holds at most one of each.
class ReflectionStream final : public RawService::StreamReactor {
 public:
  ReflectionStream() { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);  // The client half-closed the stream or left.
    const Status status = Answer();
    if (!status.ok()) return Finish(ToGrpcStatus(status));
    StartWrite(&outgoing_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&incoming_);
  }

  void OnDone() override { delete this; }

 private:
  Status Answer() {
    if (incoming_.Length() > kReflectionRequestBytesMax) {
      return InvalidArgument("the reflection request: expected at most ",
                             kReflectionRequestBytesMax, " bytes, got ", incoming_.Length());
    }
    return Guarded("the call failed: ", [this]() -> Status {
      ReflectionRequest request;
      ReflectionResponse response;
      RETURN_IF_ERROR(ParseMessage(&incoming_, &request));
      AnswerReflection(request, &response);
      outgoing_ = WriteMessage(response);
      return {};
    });
  }

  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
};

}  // namespace

ReflectionService::ReflectionService(const std::string& version)
    : RawService("grpc.reflection." + version + ".ServerReflection") {
  AddStream("ServerReflectionInfo", [](Context*) { return new ReflectionStream(); });
}

}  // namespace embershard::rpc
