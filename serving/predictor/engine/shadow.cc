#include "engine/shadow.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/split_mix.h"
#include "engine/served_models.h"

namespace embershard {
namespace {

// The largest difference between scores of the same name and place.
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

// Whether the version gets copies, and no other requests.
bool IsOnlyShadow(const ServedModels& served, const Engine& engine) {
  const ShadowVersion now = served.FindShadow(engine.manifest().model);
  return now.engine.get() == &engine && now.only_shadow;
}

}  // namespace

// Counts the copies under way. Thread-safe.
class Shadow::UnderWay {
 public:
  // Counts one more if there is room for it; else why there is none.
  std::optional<ShadowDrop> Begin(uint64_t bytes) {
    const size_t copies = copies_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t held = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (copies < kUnderWayMax && held + bytes <= kUnderWayBytesMax) return std::nullopt;
    End(bytes);
    return copies < kUnderWayMax ? ShadowDrop::kBytesUnderWay : ShadowDrop::kCopiesUnderWay;
  }

  void End(uint64_t bytes) {
    copies_.fetch_sub(1, std::memory_order_relaxed);
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

 private:
  std::atomic<size_t> copies_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
};

// The copy of one request, until both answers are compared. It refers to nothing of a Shadow, which
// may end before its requests are answered.
class Shadow::Copy : public std::enable_shared_from_this<Copy> {
 public:
  Copy(ShadowVersion shadow, const Request& request, std::shared_ptr<ShadowExecutor> runner,
       std::shared_ptr<UnderWay> under_way)
      : shadow_(std::move(shadow)),
        runner_(std::move(runner)),
        under_way_(std::move(under_way)),
        bytes_(request.held_bytes),
        request_(std::make_unique<Request>()) {
    request_->num_examples = request.num_examples;
    request_->dense = request.dense;
    request_->sparse = request.sparse;
    request_->outputs_wanted = request.outputs_wanted;
    request_->priority = Priority::kBackground;
    request_->arrival = request.arrival;
    if (!shadow_.only_shadow) request_->deadline = request.deadline;
    request_->held_bytes = request.held_bytes;
    request_->bytes = request.bytes;
    request_->may_run_inline = false;  // Its thread submits further requests, or runs batches.
  }
  ~Copy() {
    if (begun_) under_way_->End(bytes_);
  }
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  // Keeps what the client gets. False: there is no room for another copy, or no memory.
  bool Begin(const std::vector<ResponseOutput>& given) noexcept {
    if (const std::optional<ShadowDrop> drop = under_way_->Begin(bytes_)) {
      shadow_.engine->telemetry().CountShadowDropped(*drop);
      return false;
    }
    begun_ = true;
    try {
      given_ = given;
      return true;
    } catch (const std::exception&) {  // Memory has run out.
      return false;
    }
  }

  // Hands the copy to the shadow version. REQUIRES: Begin() was true, and the client has its
  // answer.
  void Run() noexcept {
    try {
      std::unique_ptr<Request> request = std::move(request_);
      request->answer = [self = shared_from_this()](const Status& status,
                                                    const Response& response) {
        self->Compare(status, response);
      };
      shadow_.engine->telemetry().CountShadowSent();
      if (!shadow_.only_shadow) return shadow_.engine->Predict(std::move(request));
      runner_->Give(shadow_.engine, std::move(request));
    } catch (const std::exception&) {  // Memory has run out: there is no copy.
    }
  }

 private:
  void Compare(const Status& status, const Response& response) noexcept {
    Telemetry& telemetry = shadow_.engine->telemetry();
    if (!status.ok()) return telemetry.CountShadowFailed();
    telemetry.CountShadowCompared(LargestDifference(given_, response.outputs));
  }

  const ShadowVersion shadow_;
  const std::shared_ptr<ShadowExecutor> runner_;
  const std::shared_ptr<UnderWay> under_way_;
  const uint64_t bytes_;
  std::unique_ptr<Request> request_;   // Null once it runs.
  bool begun_ = false;                 // Whether it counts as under way.
  std::vector<ResponseOutput> given_;  // What the client got.
};

Shadow::Shadow(const ServedModels* served, const ShadowOptions& options)
    : served_(served),
      share_(options.share),
      under_way_(std::make_shared<UnderWay>()),
      runner_(options.share <= 0
                  ? nullptr
                  : std::make_shared<ShadowExecutor>(
                        [served](const Engine& engine) { return IsOnlyShadow(*served, engine); },
                        options.time)) {}

Shadow::~Shadow() {
  if (runner_ != nullptr) runner_->Stop();
}

void Shadow::Predict(Engine* engine, std::unique_ptr<Request> request) {
  ShadowVersion shadow = runner_ != nullptr ? Find(*engine) : ShadowVersion();
  if (shadow.engine == nullptr) return engine->Predict(std::move(request));
  const Manifest& manifest = shadow.engine->manifest();
  if (manifest.schema.fingerprint != engine->manifest().schema.fingerprint) {
    shadow.engine->telemetry().CountShadowDropped(ShadowDrop::kSchema);
    return engine->Predict(std::move(request));
  }
  const auto copy = std::make_shared<Copy>(std::move(shadow), *request, runner_, under_way_);
  request->answer = [copy, tell = std::move(request->answer)](Status status, Response response) {
    const bool is_copied = status.ok() && copy->Begin(response.outputs);
    tell(std::move(status), std::move(response));
    if (is_copied) copy->Run();
  };
  engine->Predict(std::move(request));
}

ShadowVersion Shadow::Find(const Engine& engine) {
  if (!Sampled()) return {};
  ShadowVersion found = served_->FindShadow(engine.manifest().model);
  return found.engine.get() == &engine ? ShadowVersion() : found;
}

bool Shadow::Sampled() {
  constexpr uint64_t kSeed = 0x5ad0;  // Any: so that a share is not made of every tenth client.
  const uint64_t place = 1 + seen_.fetch_add(1, std::memory_order_relaxed);
  return share_ >= 1 || UnitInterval(SplitMix64(kSeed, place)) < share_;
}

}  // namespace embershard
