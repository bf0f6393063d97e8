#include "registry/model_control.h"

#include <chrono>
#include <utility>

#include "engine/request_completer.h"

namespace embershard {

ModelControl::ModelControl(ServedModels* served, std::unique_ptr<ModelSource> source,
                           ModelLoaderOptions options)
    : loader_(served, std::move(source), std::move(options)) {}

ModelControl::~ModelControl() { Stop(); }

Status ModelControl::Start() {
  RETURN_IF_ERROR(loader_.Start());
  thread_ = std::thread([this] { Run(); });
  return {};
}

void ModelControl::Refresh(Done done) {
  Give({.action = [](ModelLoader* loader, double*) { return loader->Refresh(); },
        .done = std::move(done),
        .abandoned = Never});
}

void ModelControl::Load(const std::string& model, int64_t version, Swap swap, Done done,
                        Abandoned abandoned) {
  Give({.action =
            [=](ModelLoader* loader, double* unserved_seconds) {
              return loader->Load(model, version, swap, unserved_seconds);
            },
        .done = std::move(done),
        .abandoned = std::move(abandoned)});
}

void ModelControl::Unload(const std::string& model, int64_t version, Done done,
                          Abandoned abandoned) {
  Give({.action = [=](ModelLoader* loader, double*) { return loader->Unload(model, version); },
        .done = std::move(done),
        .abandoned = std::move(abandoned)});
}

void ModelControl::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  loader_.Stop();
  std::call_once(joined_, [this] {
    if (thread_.joinable()) thread_.join();
    loader_.ReleaseVersions();
  });
}

void ModelControl::Give(Order order) {
  Status refused;
  {
    const MutexLock lock(mutex_);
    if (stopping_) {
      refused = ShuttingDown();
    } else if (orders_.size() >= kOrdersMax) {
      refused = {StatusCode::kResourceExhausted,
                 std::to_string(kOrdersMax) + " orders are waiting; try again after a pause"};
    } else {
      orders_.push_back(std::move(order));
    }
  }
  if (!refused.ok()) return order.done({.status = std::move(refused)});
  changed_.NotifyAll();
}

void ModelControl::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && orders_.empty()) changed_.Wait(mutex_);
    if (orders_.empty()) return;
    const Order order = std::move(orders_.front());
    orders_.pop_front();
    const bool refused = stopping_;
    lock.Unlock();
    LoadOutcome outcome;
    const Clock::time_point start = Clock::now();
    outcome.status = Guarded("loading failed: ", [&]() -> Status {
      if (refused) return ShuttingDown();
      if (order.abandoned()) {
        return {StatusCode::kDeadlineExceeded, "the caller cancelled the load request",
                StatusReason::kAbandoned};
      }
      return order.action(&loader_, &outcome.unserved_seconds);
    });
    outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    order.done(outcome);
    lock.Lock();
  }
}

}  // namespace embershard
