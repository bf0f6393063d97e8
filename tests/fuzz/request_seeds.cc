// request_seeds FOLDER: writes requests that are accepted, from which request_fuzz begins.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "grpc/serving_fixture.h"

namespace embershard {
namespace {

void Write(const std::filesystem::path& path, const v1::PredictRequest& message) {
  std::ofstream(path, std::ios::binary) << message.SerializeAsString();
}

// A user's vector: no example, and the output in request scope alone.
v1::PredictRequest WithoutExamples() {
  v1::PredictRequest message = NamedMessage();
  message.set_num_examples(0);
  message.add_outputs(FakeManifest().schema.outputs[1].name);
  message.mutable_dense()->DeleteSubrange(1, message.dense_size() - 1);
  message.clear_sparse();
  return message;
}

}  // namespace
}  // namespace embershard

int main(int count, char** arguments) {
  using namespace embershard;
  if (count != 2) {
    std::cerr << "request_seeds: expected a folder\n";
    return EXIT_FAILURE;
  }
  const std::filesystem::path folder = arguments[1];
  std::filesystem::create_directories(folder);
  Write(folder / "named", NamedMessage());
  Write(folder / "packed", PackedMessage());
  Write(folder / "without_examples", WithoutExamples());
  return EXIT_SUCCESS;
}
