// Outcomes of Predict calls, as they are counted: a closed set of pairs of code and reason.

#pragma once

#include <cstddef>

#include "base/status.h"

namespace embershard {

enum class Outcome {
  kOk,
  kMalformed,           // Refused by the parser.
  kRefused,             // Refused by validation.
  kTooLarge,            // More bytes than the queue may ever hold.
  kNotFound,            // No such model, version, label or output.
  kStaleSchema,         // Packed for another schema than the one served.
  kQueueFull,           // Refused because the queue is full.
  kDeadlineInfeasible,  // Refused because it could not be answered before its deadline.
  kExpired,             // The deadline passed before it was answered.
  kAbandoned,           // The client left before it was answered.
  kShuttingDown,        // Arrived after the server began to stop.
  kWithdrawn,           // Its version was withdrawn because of a stuck batch.
  kModelFailed,
  kNotFinite,  // The model returned a NaN or an infinity.
  kOutOfMemory,
};

inline constexpr size_t kOutcomes = static_cast<size_t>(Outcome::kOutOfMemory) + 1;

struct OutcomeName {
  const char* code;    // gRPC's: "OK", "INVALID_ARGUMENT", ...
  const char* reason;  // "" for OK, else for example "queue_full".
  const char* triton;  // Reason in Triton's metrics: "REJECTED", ...; "" for OK.
};

OutcomeName NameOf(Outcome outcome);

// If the status has no reason of its code, this is the most common outcome of that code.
Outcome OutcomeOf(const Status& status);

}  // namespace embershard
