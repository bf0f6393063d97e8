#include "grpc/torchrec/torchrec_messages.h"

#include "engine/engine.h"
#include "grpc/torchrec/torchrec_parser.h"

namespace embershard::rpc {
namespace {

// Under which its clients look for the scores.
constexpr char kDefault[] = "default";

// The output that has that name, or the first.
size_t DefaultOutput(const Schema& schema) {
  for (size_t i = 0; i < schema.outputs.size(); ++i) {
    if (schema.outputs[i].name == kDefault) return i;
  }
  return 0;
}

}  // namespace

Result<std::shared_ptr<Engine>> TorchRecMessages::Find(const ServedModels& served) const {
  return served.Route("", 0, "", "");
}

Status TorchRecMessages::Parse(const Engine& engine, Request* request) {
  const Status status =
      ParseTorchRec(messages_.asked(), engine.manifest().schema, engine.limits(), &ids_, request);
  request->held_bytes = messages_.held_bytes() + ids_.capacity() * sizeof(int64_t);
  return status;
}

void TorchRecMessages::Fill(const Engine& engine, const Response& answer) {
  const Schema& schema = engine.manifest().schema;
  const size_t by_default = DefaultOutput(schema);
  auto& predictions = *messages_.answer().mutable_predictions();
  for (const ResponseOutput& output : answer.outputs) {
    const bool is_default = output.output == by_default;
    predictions[is_default ? kDefault : schema.outputs[output.output].name].mutable_data()->Add(
        output.values.begin(), output.values.end());
  }
}

}  // namespace embershard::rpc
