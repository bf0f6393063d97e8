// How a call says that it failed: a code that tells the caller what to do, and a
// message that tells a person what happened. No exception crosses a thread, a C
// ABI or a gRPC handler; Status and Result do.

#pragma once

#include <optional>
#include <string>
#include <utility>

namespace embershard {

// Numbered as gRPC numbers them.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument = 3,     // Fix the request.
  kDeadlineExceeded = 4,    // Too late to be of use.
  kNotFound = 5,            // No such model, version or output.
  kResourceExhausted = 8,   // Refused to protect others. Retry after a pause.
  kFailedPrecondition = 9,  // The client's schema is stale. Fetch it again.
  kInternal = 13,           // A bug.
  kUnavailable = 14,        // Shutting down. Retry on another replica.
  kBadPackage = 100,        // Fix the package. None of gRPC's.
};

// Which rule it was, for those who count. Stated only where the code leaves it open.
enum class StatusReason {
  kUnstated,
  kMalformed,           // kInvalidArgument: not to be read as a request for this model.
  kTooLarge,            // kInvalidArgument: more than the queue can hold at all.
  kDeadlineInfeasible,  // kResourceExhausted: would not have been answered by its deadline.
  kAbandoned,           // kDeadlineExceeded: the client disconnected or cancelled.
  kNotFinite,           // kInternal: the model gave a NaN or an infinity.
  kOutOfMemory,         // kInternal.
  kOtherDevices,        // kBadPackage: the plan is for devices that are not served here.
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // Ok.
  // Control characters of the message are escaped, and it is cut at 16 KiB: it may quote names that
  // a client chose, and ends on terminals and in logs.
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

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status BadPackage(std::string message) {
  return {StatusCode::kBadPackage, std::move(message)};
}
inline Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }
// So short that it lies in its string, and takes no memory.
inline Status OutOfMemory() {
  return {StatusCode::kInternal, "out of memory", StatusReason::kOutOfMemory};
}

// Either a value or the reason why there is none.
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

}  // namespace embershard
