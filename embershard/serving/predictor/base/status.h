// Errors: a code that tells the caller what to do, and a message that tells a person what happened.
// Exceptions never cross a thread, a C ABI or a gRPC handler; Status and Result do.

#pragma once

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"

namespace embershard {

// Codes have gRPC's numbers.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument = 3,     // Fix the request.
  kDeadlineExceeded = 4,    // Too late to be of use.
  kNotFound = 5,            // No such model, version or output.
  kResourceExhausted = 8,   // Overload. Retry after a pause.
  kFailedPrecondition = 9,  // The client's schema is stale. Fetch it again.
  kInternal = 13,           // A bug.
  kUnavailable = 14,        // Shutting down. Retry on another replica.
  kBadPackage = 100,        // Fix the package. Not a code of gRPC.
};

// Detail for metrics, set if the code alone is ambiguous.
enum class StatusReason {
  kUnstated,
  kMalformed,           // kInvalidArgument: cannot be parsed as a request for this model.
  kTooLarge,            // kInvalidArgument: larger than the whole queue.
  kDeadlineInfeasible,  // kResourceExhausted: cannot be answered before its deadline.
  kAbandoned,           // kDeadlineExceeded: the client disconnected or cancelled.
  kWithdrawn,           // kUnavailable: the version was withdrawn because of a stuck batch.
  kNotFinite,           // kInternal: the model returned a NaN or an infinity.
  kOutOfMemory,         // kInternal; kResourceExhausted for a device's memory.
  kOtherDevices,        // kBadPackage: the plan is for devices that this server does not use.
  kDeviceLost,          // kUnavailable: a GPU will not work again in this process.
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // Ok.
  // Escapes control characters of the message and truncates it at 16 KiB, because it may quote a
  // client's names and appear on terminals and in logs.
  Status(StatusCode code, std::string message, StatusReason reason = StatusReason::kUnstated);

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  StatusReason reason() const { return reason_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  StatusReason reason_ = StatusReason::kUnstated;
  std::string message_;
};

template <class... Parts>
Status InvalidArgument(const Parts&... message) {
  return {StatusCode::kInvalidArgument, StrCat(message...)};
}
template <class... Parts>
Status NotFound(const Parts&... message) {
  return {StatusCode::kNotFound, StrCat(message...)};
}
template <class... Parts>
Status BadPackage(const Parts&... message) {
  return {StatusCode::kBadPackage, StrCat(message...)};
}
template <class... Parts>
Status Internal(const Parts&... message) {
  return {StatusCode::kInternal, StrCat(message...)};
}
// The message fits into the string object, so that no memory is allocated.
inline Status OutOfMemory() {
  return {StatusCode::kInternal, "out of memory", StatusReason::kOutOfMemory};
}

// A value, or the Status that explains why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // REQUIRES: ok().
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns the Status or Result of `work`. Exceptions are converted: lack of memory to
// OutOfMemory(), all others to kInternal, with `failed` before their text.
template <class Work>
auto Guarded(const char* failed, const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& error) {
    return Internal(failed, error.what());
  }
}

}  // namespace embershard

// Returns the expression's Status from the calling function if it is not ok.
#define RETURN_IF_ERROR(...)                                                                    \
  do {                                                                                          \
    if (embershard::Status status_or_ok = __VA_ARGS__; !status_or_ok.ok()) return status_or_ok; \
  } while (false)

// Assigns the value of the expression's Result to `variable`, or returns its status:
// ASSIGN_OR_RETURN(const Plan plan, ParsePlan(text));
#define ASSIGN_OR_RETURN(variable, ...) \
  ASSIGN_OR_RETURN_BY(EMBERSHARD_CONCAT(result_at_, __LINE__), variable, __VA_ARGS__)
#define ASSIGN_OR_RETURN_BY(result, variable, ...) \
  auto result = __VA_ARGS__;                       \
  if (!result.ok()) return result.status();        \
  variable = std::move(*result)
#define EMBERSHARD_CONCAT(a, b) EMBERSHARD_CONCAT_(a, b)
#define EMBERSHARD_CONCAT_(a, b) a##b
