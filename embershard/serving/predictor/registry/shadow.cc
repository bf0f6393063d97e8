#include "registry/shadow.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/split_mix.h"
#include "engine/request_completer.h"
#include "registry/served_models.h"

namespace embershard {
namespace {

// Limits of a batch of copies: small, so that it does not evict the caches of serving threads.
constexpr size_t kBatchCopies = 8;
constexpr uint64_t kBatchExamples = 256;  // A larger copy runs alone.
// Limit for the rest after a batch, which is long if the batch waited long for a processor.
constexpr std::chrono::duration<double> kLongestRest = std::chrono::minutes(1);

constexpr std::chrono::milliseconds kCopyPollPeriod{100};

double LargestDifference(const std::vector<ResponseOutput>& one,
                         const std::vector<ResponseOutput>& other) {
  double largest = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    for (size_t k = 0; k < one[i].values.size(); ++k) {
      largest = std::max(largest, std::abs(double{one[i].values[k]} - other[i].values[k]));
    }
  }
  return largest;
}

// True if the version gets only copies.
bool IsOnlyShadow(const ServedModels& served, const Engine& engine) {
  const ShadowVersion now = served.FindShadow(engine.manifest().model);
  return now.engine.get() == &engine && now.only_shadow;
}

void Refuse(const std::unique_ptr<Request>& copy, Status status) {
  if (copy != nullptr) copy->answer(std::move(status), {});
}

Status NoShadow() { return {StatusCode::kUnavailable, "the version is no shadow any more"}; }

}  // namespace

// Thread-safe. Counts copies under way, and runs the copies for versions that get no other
// requests, on one thread. Every copy is answered exactly once, with kUnavailable if its version is
// no longer a shadow or the executor stops. Deadlines are ignored, since no client waits.
class Shadow::Executor {
 public:
  // Does not own `served`, and does not use it after Stop().
  Executor(const ServedModels* served, double time)
      : served_(served), time_(time), thread_([this] { Loop(); }) {}
  ~Executor() { Stop(); }

  // Waits for the running batch. Waiting and later copies are answered kUnavailable. May be called
  // more than once.
  void Stop() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    if (thread_.joinable()) thread_.join();
  }

  // Returns the reason if there is no room for the copy.
  std::optional<ShadowDrop> Reserve(uint64_t bytes) {
    const size_t copies = copies_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t held = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (copies < kUnderWayMax && held + bytes <= kUnderWayBytesMax) return std::nullopt;
    Release(bytes);
    return copies < kUnderWayMax ? ShadowDrop::kBytesUnderWay : ShadowDrop::kCopiesUnderWay;
  }

  void Release(uint64_t bytes) {
    copies_.fetch_sub(1, std::memory_order_relaxed);
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  void Give(std::shared_ptr<Engine> engine, std::unique_ptr<Request> copy) noexcept;

 private:
  struct Waiting {
    std::shared_ptr<Engine> engine;
    std::unique_ptr<Request> copy;
  };

  void Loop();
  // Waits for a short time until there are copies and `next` has passed. Appends all waiting copies
  // to `taken`. Returns false after Stop().
  bool Take(Clock::time_point next, std::list<Waiting>* taken);
  // Answers copies whose version is no longer a shadow, so that they release it. Called before each
  // batch, because other requests of a version would wait for its batch of copies.
  void RefuseOthers(std::list<Waiting>* taken);
  // Runs a batch of the first copy and those after it that fit. Returns the earliest time of the
  // next batch. REQUIRES: `taken` is not empty.
  Clock::time_point RunFirst(std::list<Waiting>* taken);

  const ServedModels* const served_;
  const double time_;
  std::atomic<size_t> copies_ = 0;  // Copies under way.
  std::atomic<uint64_t> bytes_ = 0;

  Mutex mutex_;      // Held briefly: at idle priority its holder may wait for a processor.
  CondVar changed_;  // Signalled when the fields below change.
  std::list<Waiting> waiting_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  std::thread thread_;  // Last, so that Loop() starts after all fields exist.
};

void Shadow::Executor::Give(std::shared_ptr<Engine> engine,
                            std::unique_ptr<Request> copy) noexcept {
  bool wake = false;
  bool stopped = false;
  try {
    const MutexLock lock(mutex_);
    stopped = stopping_;
    if (!stopped) {
      waiting_.emplace_back();
      waiting_.back() = {.engine = std::move(engine), .copy = std::move(copy)};
      wake = waiting_.size() == 1;
    }
  } catch (const std::exception&) {
    return Refuse(copy, OutOfMemory());
  }
  if (stopped) return Refuse(copy, ShuttingDown());
  if (wake) changed_.NotifyOne();
}

void Shadow::Executor::Loop() {
  (void)SetIdlePriority();  // Optional: copies also run without it.
  std::list<Waiting> taken;
  Clock::time_point next;
  while (Take(next, &taken)) {
    RefuseOthers(&taken);
    if (!taken.empty() && Clock::now() >= next) next = RunFirst(&taken);
  }
  for (const Waiting& waiting : taken) Refuse(waiting.copy, ShuttingDown());
}

bool Shadow::Executor::Take(Clock::time_point next, std::list<Waiting>* taken) {
  const MutexLock lock(mutex_);
  while (taken->empty() && !stopping_ && waiting_.empty()) changed_.Wait(mutex_);
  const Clock::time_point look = std::min(next, Clock::now() + kCopyPollPeriod);
  while (!stopping_ && changed_.WaitUntil(mutex_, look)) continue;
  taken->splice(taken->end(), waiting_);
  return !stopping_;
}

void Shadow::Executor::RefuseOthers(std::list<Waiting>* taken) {
  const Engine* last_engine = nullptr;
  bool is_shadow = false;
  std::erase_if(*taken, [&](const Waiting& waiting) {
    if (waiting.engine.get() != last_engine) is_shadow = IsOnlyShadow(*served_, *waiting.engine);
    last_engine = waiting.engine.get();
    if (!is_shadow) Refuse(waiting.copy, NoShadow());
    return !is_shadow;
  });
}

Clock::time_point Shadow::Executor::RunFirst(std::list<Waiting>* taken) {
  const Clock::time_point begin = Clock::now();
  const double cpu_before = ThreadCpuSeconds();
  const std::shared_ptr<Engine> engine = taken->front().engine;
  std::vector<std::unique_ptr<Request>> batch;
  try {
    batch.reserve(kBatchCopies);
  } catch (const std::exception&) {  // Out of memory.
    Refuse(taken->front().copy, OutOfMemory());
    taken->pop_front();
    return begin;
  }
  uint64_t examples = 0;
  while (!taken->empty() && taken->front().engine == engine && batch.size() < kBatchCopies) {
    std::unique_ptr<Request>& copy = taken->front().copy;
    examples += copy->num_examples;
    if (!batch.empty() && examples > kBatchExamples) break;
    batch.push_back(std::move(copy));
    taken->pop_front();
  }
  engine->PredictMerged(std::move(batch));
  const Clock::duration took = Clock::now() - begin;
  engine->telemetry().CountShadowBatch(took, ThreadCpuSeconds() - cpu_before);
  const std::chrono::duration<double> ran = took;
  const std::chrono::duration<double> turn = std::min(ran / time_, ran + kLongestRest);
  return begin + std::chrono::duration_cast<Clock::duration>(turn);
}

// The copy of a request, until both answers are compared. It does not refer to the Shadow, which
// may be destroyed before its requests are answered.
class Shadow::Copy : public std::enable_shared_from_this<Copy> {
 public:
  Copy(ShadowVersion shadow, const Request& request, std::shared_ptr<Executor> executor)
      : shadow_(std::move(shadow)),
        executor_(std::move(executor)),
        bytes_(request.held_bytes),
        request_(std::make_unique<Request>()) {
    request_->num_examples = request.num_examples;
    request_->dense = request.dense;
    request_->sparse = request.sparse;
    request_->outputs_wanted = request.outputs_wanted;
    request_->priority = Priority::kBackground;
    request_->is_copy = true;
    request_->arrival = request.arrival;
    if (!shadow_.only_shadow) request_->deadline = request.deadline;
    request_->held_bytes = request.held_bytes;
    request_->bytes = request.bytes;
    request_->may_run_inline = false;  // Its thread submits further requests, or runs batches.
  }
  ~Copy() {
    if (begun_) executor_->Release(bytes_);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  // Keeps the client's answer. Returns false if there is no room or memory for another copy.
  bool Begin(const std::vector<ResponseOutput>& outputs) noexcept {
    if (const std::optional<ShadowDrop> drop = executor_->Reserve(bytes_)) {
      shadow_.engine->telemetry().CountShadowDropped(*drop);
      return false;
    }
    begun_ = true;
    try {
      given_ = outputs;
      return true;
    } catch (const std::exception&) {  // Out of memory.
      return false;
    }
  }

  // REQUIRES: Begin() returned true, and the client has its answer.
  void Run() noexcept {
    try {
      std::unique_ptr<Request> request = std::move(request_);
      request->answer = [self = shared_from_this()](const Status& status,
                                                    const Response& response) {
        self->Compare(status, response);
      };
      shadow_.engine->telemetry().CountShadowSent();
      if (!shadow_.only_shadow) return shadow_.engine->Predict(std::move(request));
      executor_->Give(shadow_.engine, std::move(request));
    } catch (const std::exception&) {  // Out of memory: the copy is dropped.
    }
  }

 private:
  void Compare(const Status& status, const Response& response) noexcept {
    Telemetry& telemetry = shadow_.engine->telemetry();
    if (!status.ok()) return telemetry.CountShadowFailed();
    telemetry.CountShadowCompared(LargestDifference(given_, response.outputs));
  }

  const ShadowVersion shadow_;
  const std::shared_ptr<Executor> executor_;
  const uint64_t bytes_;
  std::unique_ptr<Request> request_;   // Null once it runs.
  bool begun_ = false;                 // True if it counts as under way.
  std::vector<ResponseOutput> given_;  // The client's answer.
};

Shadow::Shadow(const ServedModels* served, const ShadowOptions& options)
    : served_(served),
      share_(options.share),
      executor_(options.share <= 0 ? nullptr : std::make_shared<Executor>(served, options.time)) {}

Shadow::~Shadow() {
  if (executor_ != nullptr) executor_->Stop();
}

void Shadow::Predict(Engine* engine, std::unique_ptr<Request> request) {
  ShadowVersion shadow = executor_ != nullptr ? Find(*engine) : ShadowVersion();
  if (shadow.engine == nullptr) return engine->Predict(std::move(request));
  const Manifest& manifest = shadow.engine->manifest();
  if (manifest.schema.fingerprint != engine->manifest().schema.fingerprint) {
    shadow.engine->telemetry().CountShadowDropped(ShadowDrop::kSchema);
    return engine->Predict(std::move(request));
  }
  const auto copy = std::make_shared<Copy>(std::move(shadow), *request, executor_);
  request->answer = [copy, tell = std::move(request->answer)](Status status, Response response) {
    const bool is_copied = status.ok() && copy->Begin(response.outputs);
    tell(std::move(status), std::move(response));
    if (is_copied) copy->Run();
  };
  engine->Predict(std::move(request));
}

ShadowVersion Shadow::Find(const Engine& engine) {
  if (!Sampled()) return {};
  ShadowVersion shadow = served_->FindShadow(engine.manifest().model);
  return shadow.engine.get() == &engine ? ShadowVersion() : shadow;
}

bool Shadow::Sampled() {
  constexpr uint64_t kSeed =
      0x5ad0;  // Arbitrary. Hashing avoids sampling every n-th request, often one client's.
  const uint64_t place = 1 + seen_.fetch_add(1, std::memory_order_relaxed);
  return share_ >= 1 || UnitInterval(SplitMix64(kSeed, place)) < share_;
}

}  // namespace embershard
