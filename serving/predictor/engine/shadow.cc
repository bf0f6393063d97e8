#include "engine/shadow.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
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
  // Whether there is room for one more, which is counted then.
  bool Begin(uint64_t bytes) {
    const size_t copies = copies_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t held = bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (copies < kUnderWayMax && held + bytes <= kUnderWayBytesMax) return true;
    End(bytes);
    return false;
  }

  void End(uint64_t bytes) {
    copies_.fetch_sub(1, std::memory_order_relaxed);
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

 private:
  std::atomic<size_t> copies_ = 0;
  std::atomic<uint64_t> bytes_ = 0;
};

// One request's two answers, in whatever order they come.
class Shadow::Comparison {
 public:
  Comparison(std::shared_ptr<Engine> shadow, std::shared_ptr<UnderWay> under_way)
      : shadow_(std::move(shadow)), under_way_(std::move(under_way)) {}
  ~Comparison() {
    if (begun_) under_way_->End(bytes_);
  }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  // Counts as under way from here to its end. False: there is no room for a copy of so many bytes.
  bool Begin(uint64_t bytes) {
    begun_ = under_way_->Begin(bytes);
    bytes_ = bytes;
    return begun_;
  }

  Engine& shadow() const { return *shadow_; }

  // What the client gets.
  void Given(const Status& status, const Response& response) noexcept {
    Take(&given_, status, response.outputs);
  }

  // What the shadow version answers.
  void Shadowed(const Status& status, const Response& response) noexcept {
    if (!status.ok()) shadow_->telemetry().CountShadowFailed();
    Take(&shadowed_, status, response.outputs);
  }

 private:
  using Outputs = std::optional<std::vector<ResponseOutput>>;

  void Take(Outputs* place, const Status& status, const std::vector<ResponseOutput>& outputs) {
    if (!status.ok()) return;
    try {
      std::vector<ResponseOutput> copied = outputs;
      const std::lock_guard lock(mutex_);
      *place = std::move(copied);
      if (!given_ || !shadowed_) return;
      shadow_->telemetry().CountShadowCompared(LargestDifference(*given_, *shadowed_));
    } catch (const std::exception&) {  // Memory has run out: it is not compared.
    }
  }

  const std::shared_ptr<Engine> shadow_;
  const std::shared_ptr<UnderWay> under_way_;
  bool begun_ = false;
  uint64_t bytes_ = 0;

  std::mutex mutex_;
  Outputs given_;     // Guarded by mutex_.
  Outputs shadowed_;  // Guarded by mutex_.
};

Shadow::Shadow(const ServedModels* served, const ShadowOptions& options)
    : served_(served),
      share_(options.share),
      under_way_(std::make_shared<UnderWay>()),
      runner_(options.share <= 0
                  ? nullptr
                  : std::make_unique<CopyRunner>(
                        [served](const Engine& engine) { return IsOnlyShadow(*served, engine); },
                        options.time)) {}

void Shadow::Review() {
  if (runner_ != nullptr) runner_->Review();
}

void Shadow::Predict(Engine* engine, std::unique_ptr<Request> request) {
  const auto [shadow, only_shadow] = share_ > 0 ? Find(*engine) : ShadowVersion();
  if (shadow == nullptr) return engine->Predict(std::move(request));
  Telemetry& telemetry = shadow->telemetry();
  const bool same = shadow->manifest().schema.fingerprint == engine->manifest().schema.fingerprint;
  const auto comparison = std::make_shared<Comparison>(shadow, under_way_);
  if (!same || !comparison->Begin(request->held_bytes)) {
    telemetry.CountShadowDropped();
    return engine->Predict(std::move(request));
  }
  auto copy = std::make_unique<Request>();
  copy->num_examples = request->num_examples;
  copy->dense = request->dense;
  copy->sparse = request->sparse;
  copy->outputs_wanted = request->outputs_wanted;
  copy->priority = Priority::kBatch;
  copy->arrival = request->arrival;
  if (!only_shadow) copy->deadline = request->deadline;
  copy->held_bytes = request->held_bytes;
  copy->bytes = request->bytes;
  copy->may_run_inline = false;  // This thread brings further requests.
  copy->answer = [comparison](const Status& status, const Response& response) {
    comparison->Shadowed(status, response);
  };
  request->answer = [comparison, tell = std::move(request->answer)](Status status,
                                                                    Response response) {
    comparison->Given(status, response);
    tell(std::move(status), std::move(response));
  };
  engine->Predict(std::move(request));
  telemetry.CountShadowSent();
  if (!only_shadow) return shadow->Predict(std::move(copy));
  runner_->Give(shadow, std::move(copy));
  // It may have been given behind a review that was for it.
  if (!IsOnlyShadow(*served_, *shadow)) runner_->Review();
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
