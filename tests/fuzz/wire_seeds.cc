// wire_seeds FOLDER: writes valid requests, the seeds of the fuzzers of the protocols, to
// FOLDER/request, FOLDER/oip and FOLDER/torchrec.

#include <google/protobuf/message.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "grpc/other_protocols.h"
#include "grpc/serving_fixture.h"

namespace embershard::rpc {
namespace {

void Write(const std::filesystem::path& path, const google::protobuf::Message& message) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << message.SerializeAsString();
}

// A request for a user's vector: it has no examples and only the output in request scope.
v1::PredictRequest WithoutExamples() {
  v1::PredictRequest message = NamedMessage();
  message.set_num_examples(0);
  message.add_outputs(FakeManifest().schema.outputs[1].name);
  message.mutable_dense()->DeleteSubrange(1, message.dense_size() - 1);
  message.clear_sparse();
  return message;
}

inference::ModelInferRequest InferWithoutExamples() {
  inference::ModelInferRequest message;
  AddRow(FakeManifest().schema.dense[0].name, "FP32", GoodInputs().dense[0], &message);
  message.add_outputs()->set_name(FakeManifest().schema.outputs[1].name);
  return message;
}

}  // namespace
}  // namespace embershard::rpc

int main(int count, char** arguments) {
  using namespace embershard::rpc;
  if (count != 2) {
    std::cerr << "wire_seeds: expected a folder\n";
    return EXIT_FAILURE;
  }
  const std::filesystem::path folder = arguments[1];
  Write(folder / "request" / "named", NamedMessage());
  Write(folder / "request" / "packed", PackedMessage());
  Write(folder / "request" / "without_examples", WithoutExamples());
  Write(folder / "oip" / "by_name", InferByName());
  Write(folder / "oip" / "packed", InferPacked());
  Write(folder / "oip" / "typed", Typed(InferByName()));
  Write(folder / "oip" / "typed_packed", Typed(InferPacked()));
  Write(folder / "oip" / "without_examples", InferWithoutExamples());
  Write(folder / "torchrec" / "all", TorchRecMessage());
  return EXIT_SUCCESS;
}
