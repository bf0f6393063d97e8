#include "batching/fair_share.h"

#include <algorithm>

namespace embershard {
namespace {

constexpr double kLeastWeight = 1e-3;

double Nanoseconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()); }

}  // namespace

FairShare::Model* FairShare::Add(const std::string& name, double weight) {
  Model* const model = &models_[name];
  if (model->queues++ == 0) model->weight = std::max(weight, kLeastWeight);
  return model;
}

void FairShare::Remove(const std::string& name) {
  const auto model = models_.find(name);
  if (--model->second.queues == 0) models_.erase(model);
}

double FairShare::StartOf(const Model& model) const { return std::max(model.virtual_ns, now_ns_); }

bool FairShare::IsBefore(const Model& one, const Model& other) const {
  const double first = StartOf(one);
  const double second = StartOf(other);
  return first != second ? first < second : one.turn < other.turn;
}

void FairShare::Begin(Model* model, std::chrono::nanoseconds expected, Clock::time_point now) {
  now_ns_ = StartOf(*model);
  model->virtual_ns = now_ns_ + Nanoseconds(expected) / model->weight;
  model->turn = ++turns_;
  model->used = now;
}

void FairShare::End(Model* model, std::chrono::nanoseconds expected,
                    std::chrono::nanoseconds took) {
  model->virtual_ns += Nanoseconds(took - expected) / model->weight;
}

double FairShare::ShareOf(const Model& model, Clock::time_point now) const {
  double active = model.weight;
  for (const auto& [name, other] : models_) {
    if (&other != &model && other.turn > 0 && now - other.used < kActive) active += other.weight;
  }
  return model.weight / active;
}

}  // namespace embershard
