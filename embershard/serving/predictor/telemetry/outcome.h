// How a Predict call may end, as it is counted: a closed set of pairs of code and reason.

#pragma once

#include <cstddef>

#include "base/status.h"

namespace embershard {

enum class Outcome {
  kOk,
  kMalformed,           // Not to be read as a request for this model: the parser.
  kRefused,             // By validation.
  kTooLarge,            // More bytes than the queue may ever hold.
  kNotFound,            // No such model, version, label or output.
  kStaleSchema,         // Packed for another schema than the one served.
  kQueueFull,           // Refused to protect others.
  kDeadlineInfeasible,  // Refused since it would not have been answered by its deadline.
  kExpired,             // The deadline passed before it was answered.
  kAbandoned,           // The client left before it was answered.
  kShuttingDown,        // Came after the server had begun to stop.
  kWithdrawn,           // Its version was withdrawn, as a batch does not end.
  kModelFailed,
  kNotFinite,  // The model gave a NaN or an infinity.
  kOutOfMemory,
};

inline constexpr size_t kOutcomes = static_cast<size_t>(Outcome::kOutOfMemory) + 1;

// As operators read it.
struct OutcomeName {
  const char* code;    // gRPC's: "OK", "INVALID_ARGUMENT", ...
  const char* reason;  // "" for OK, else for example "queue_full".
  const char* triton;  // What Triton's metrics call the reason: "REJECTED", ...; "" for OK.
};

OutcomeName NameOf(Outcome outcome);

// Where a status ends. One that states no reason, or one that does not go with its code, ends
// where most of its code do.
Outcome OutcomeOf(const Status& status);

}  // namespace embershard
