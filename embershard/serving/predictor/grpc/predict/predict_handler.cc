#include "grpc/predict/predict_handler.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/text.h"

namespace embershard::rpc {
namespace {

// A client that cancels this shortly before its deadline, or with a small share of its time left,
// has probably run out of time by its own clock.
constexpr std::chrono::milliseconds kClientsHeadStart{5};
constexpr int kClientsHeadStartShare = 20;

constexpr char kCallFailed[] = "the call failed: ";

constexpr size_t kSlowLogChars = 128;  // Most characters of a client's own text in the log.

// Empty if the client did not send the header.
std::string_view HeaderOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto& headers = context.client_metadata();
  const auto entry = headers.find(key);
  if (entry == headers.end()) return {};
  return {entry->second.data(), entry->second.size()};
}

bool OutOfTime(const Exchange& exchange, Clock::time_point now) {
  const Clock::duration early = std::max<Clock::duration>(
      kClientsHeadStart, (exchange.deadline - exchange.arrival) / kClientsHeadStartShare);
  return exchange.deadline - early <= now;
}

}  // namespace

PredictHandler::PredictHandler(ServedModels* served, Recorder* recorder,
                               std::chrono::milliseconds default_timeout,
                               OpenConnections* connections)
    : served_(served),
      recorder_(recorder),
      default_timeout_(default_timeout),
      connections_(connections) {
  SilenceProtobuf();
}

void PredictHandler::SetAuthenticated(const grpc::CallbackServerContext& context) const {
  if (connections_ == nullptr) return;
  try {
    connections_->SetAuthenticated(context.peer());
  } catch (const std::exception&) {  // Out of memory: the next call reports it again.
  }
}

void PredictHandler::Arrive(Exchange* exchange, Clock::time_point call_deadline) const {
  exchange->arrival = Clock::now();
  if (recorder_ != nullptr) exchange->wall_arrival = std::chrono::system_clock::now();
  exchange->deadline = call_deadline;
  if (const std::chrono::nanoseconds own = exchange->messages->timeout(); own.count() > 0) {
    exchange->deadline = std::min(call_deadline, exchange->arrival + own);
  } else if (call_deadline == Clock::time_point::max()) {
    exchange->deadline = exchange->arrival + default_timeout_;
  }
  exchange->refused = Guarded(kCallFailed, [&] {
    auto engine = exchange->messages->Find(*served_);
    if (engine.ok()) exchange->engine = std::move(*engine);
    return engine.status();
  });
  TelemetryOf(*exchange).CountArrival();
}

Telemetry& PredictHandler::TelemetryOf(const Exchange& exchange) const {
  return exchange.engine != nullptr ? exchange.engine->telemetry() : served_->telemetry();
}

void PredictHandler::Handle(Exchange* exchange, std::shared_ptr<const void> bytes) const {
  const Status status = Guarded(kCallFailed, [&] { return Begin(exchange, std::move(bytes)); });
  if (!status.ok()) End(exchange, status, {});
}

Status PredictHandler::Begin(Exchange* exchange, std::shared_ptr<const void> bytes) const {
  if (exchange->engine == nullptr) return exchange->refused;
  Engine& engine = *exchange->engine;
  auto request = std::make_unique<Request>();
  request->bytes = std::move(bytes);
  if (Status status = exchange->messages->Parse(engine, request.get()); !status.ok()) {
    if (status.code() != StatusCode::kInvalidArgument) return status;
    return {status.code(), status.message(), StatusReason::kMalformed};
  }
  request->arrival = exchange->arrival;
  request->deadline = exchange->deadline;
  request->abandoned = [context = exchange->context] { return context->IsCancelled(); };
  request->cancellation = &exchange->cancellation;
  request->may_run_inline = exchange->alone;
  request->answer = [this, exchange](Status status, Response answer) {
    if (status.ok()) {
      status = Guarded(kCallFailed, [&] {
        exchange->messages->Fill(*exchange->engine, answer);
        return Status();
      });
    }
    End(exchange, status, answer);
  };
  served_->shadow().Predict(&engine, std::move(request));
  return {};
}

void PredictHandler::Cancel(Exchange* exchange) const {
  if (exchange->engine == nullptr) return;
  exchange->engine->Cancel(&exchange->cancellation, OutOfTime(*exchange, Clock::now())
                                                        ? StatusReason::kUnstated
                                                        : StatusReason::kAbandoned);
}

void PredictHandler::Record(const Exchange& exchange) const {
  if (recorder_ == nullptr) return;
  exchange.messages->Record(recorder_, exchange.ended, exchange.wall_arrival);
}

void PredictHandler::End(Exchange* exchange, const Status& status, const Response& answer) const {
  const Outcome outcome = OutcomeOf(status);
  const Clock::time_point now = Clock::now();
  const uint64_t bytes = exchange->messages->bytes_received();
  served_->telemetry().slow_log().Offer(now - exchange->arrival, [&] {
    return SlowRequest{
        .unix_seconds = UnixSeconds(),
        .outcome = outcome,
        .message = status.message(),
        .examples = exchange->messages->examples(),
        .ids = answer.num_ids,
        .bytes = bytes,
        .peer = exchange->context->peer(),
        .traceparent = PrintableAscii(HeaderOf(*exchange->context, "traceparent"), kSlowLogChars),
        .request_id = std::string(CutUtf8(exchange->messages->id(), kSlowLogChars)),
        .queue_us = answer.timing.queue_us,
        .lookup_us = answer.timing.lookup_us,
        .dense_us = answer.timing.dense_us,
        .total_us = MicrosecondsBetween(exchange->arrival, now)};
  });
  TelemetryOf(*exchange).CountEnd(
      {.outcome = outcome,
       .is_background = exchange->messages->priority() == Priority::kBackground,
       .total = now - exchange->arrival,
       .examples = exchange->messages->examples(),
       .bytes_received = bytes,
       .bytes_sent = status.ok() ? exchange->messages->bytes_sent() : 0});
  if (recorder_ != nullptr) exchange->ended = status;
  exchange->retry_after = answer.retry_after;
  exchange->send(status);
}

Clock::time_point PredictHandler::DeadlineOf(const grpc::CallbackServerContext& context,
                                             Clock::time_point now) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return Clock::time_point::max();
  }
  // Longer timeouts are limited to 2^31 milliseconds.
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return now + std::chrono::milliseconds(gpr_time_to_millis(left));
}

}  // namespace embershard::rpc
