#include "engine/request_completer.h"

#include <exception>
#include <string>
#include <utility>

#include "base/clock.h"

namespace embershard {
namespace {

std::string ReasonText(const EarlyCompletion& early) {
  const std::string what =
      early.why == StatusReason::kAbandoned ? "the client left" : "the deadline passed";
  return what + (early.runs ? " while the request ran" : " while the request waited");
}

// Response of a request for which the model failed.
Response Waited(const Request& request, Clock::time_point until) {
  Response response;
  response.num_ids = request.num_ids;
  response.timing.queue_us = MicrosecondsBetween(request.arrival, until);
  return response;
}

// Allocates no memory.
void AnswerFailed(std::unique_ptr<Request>& request) {
  if (request == nullptr) return;
  const std::unique_ptr<Request> answered = std::move(request);
  if (answered->answer) answered->answer(OutOfMemory(), {});
}

}  // namespace

Status VersionWithdrawn() {
  return {StatusCode::kUnavailable, "the version was withdrawn: one of its batches does not end",
          StatusReason::kWithdrawn};
}

Status ShuttingDown() { return {StatusCode::kUnavailable, "the server is shutting down"}; }

void RequestCompleter::Run(Due due, BatchingQueue* held) {
  try {
    AnswerLeft(&due.expired, StatusReason::kUnstated);
    AnswerLeft(&due.abandoned, StatusReason::kAbandoned);
    if (!due.batch.empty()) RunBatch(&due, &held);
  } catch (const std::exception&) {  // Out of memory: skip its entry in the slow log.
  }
  if (held != nullptr) held->EndRun(due.lease);
  for (Batch* part : {&due.expired, &due.abandoned, &due.batch}) {
    for (auto& request : *part) AnswerFailed(request);
  }
  AnswerFailed(due.failed);
}

void RequestCompleter::RunBatch(Due* due, BatchingQueue** held) {
  Batch* const batch = &due->batch;
  BatchTimes times;
  const IsWanted wanted = [queue = *held](const Request& request) {
    return queue == nullptr || queue->IsWanted(request);
  };
  Result<std::vector<Result<Response>>> responses =
      executor_->Run(*batch, wanted, due->lease.buffers.get(), &times);
  if (*held != nullptr) std::exchange(*held, nullptr)->EndRun(due->lease);
  CountRun(*batch, responses, times);
  bool device_lost = false;
  for (size_t i = 0; i < batch->size(); ++i) {
    Status status = responses.ok() ? (*responses)[i].status() : responses.status();
    device_lost = device_lost || status.reason() == StatusReason::kDeviceLost;
    const std::unique_ptr<Request> request = std::move((*batch)[i]);
    if (!request->answer) continue;  // Its deadline passed while it ran, or its client left.
    if (status.ok()) {
      Response& response = *(*responses)[i];
      response.num_ids = request->num_ids;
      request->answer({}, std::move(response));
    } else {
      Response failed = Waited(*request, times.start);
      failed.timing.lookup_us = times.lookup_us;
      failed.timing.dense_us = times.dense_us;
      request->answer(std::move(status), std::move(failed));
    }
  }
  if (device_lost) on_device_lost_();
}

void RequestCompleter::CountRun(const Batch& batch,
                                const Result<std::vector<Result<Response>>>& responses,
                                const BatchTimes& times) {
  uint64_t examples = 0;
  for (const auto& request : batch) {
    if (request->first_example == 0 && !request->is_copy) {
      telemetry_->CountQueued(times.start - request->arrival);
    }
    examples += request->num_examples;
  }
  telemetry_->CountReruns(static_cast<uint64_t>(times.reruns));
  if (!responses.ok()) return telemetry_->CountFailedBatch();
  uint64_t answered = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Result<Response>& response = (*responses)[i];
    if (!response.ok() || !batch[i]->answer) continue;
    ++answered;
    for (const UnknownIdCount& unknown : response->unknown_ids) {
      telemetry_->CountUnknownIds(unknown.sparse_input, unknown.count);
    }
  }
  telemetry_->CountBatch({.requests = batch.size(),
                          .answered = answered,
                          .examples = examples,
                          .lookup_us = times.lookup_us,
                          .dense_us = times.dense_us});
}

void RequestCompleter::AnswerLeft(Batch* requests, StatusReason why) {
  for (auto& waiting : *requests) CompleteEarly(EarlyCompletion(std::move(waiting), why));
}

void RequestCompleter::CompleteEarly(EarlyCompletion early) {
  Response response;
  response.timing.queue_us = early.runs ? 0 : MicrosecondsBetween(early.arrival, Clock::now());
  response.num_ids = early.num_ids;
  Status status;
  try {
    status = early.withdrawn ? VersionWithdrawn()
                             : Status(StatusCode::kDeadlineExceeded, ReasonText(early), early.why);
  } catch (const std::exception&) {
    status = OutOfMemory();
  }
  early.answer(std::move(status), std::move(response));
}

}  // namespace embershard
