#include "engine/model_runner.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "base/divide_up.h"
#include "batching/request_validation.h"
#include "engine/self_check.h"

namespace embershard {
namespace {

Status CheckTolerance(float tolerance) {
  if (tolerance >= 0 && std::isfinite(tolerance)) return {};
  return InvalidArgument("sample_tolerance: expected a finite number of at least 0, got ",
                         tolerance);
}

Limits LesserOf(const Limits& package, const BatchingOptions& batching) {
  return {.max_examples = static_cast<uint32_t>(
              std::min<uint64_t>(package.max_examples, batching.max_request_examples)),
          .max_ids = std::min(package.max_ids, batching.max_request_ids)};
}

ChunkBudget BudgetOf(const BatchingOptions& batching) {
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  return {.examples = static_cast<uint32_t>(std::min(batching.max_batch_examples, kMost)),
          .ids = batching.max_batch_ids};
}

void AnswerLeft(Batch* requests) {
  for (const auto& request : *requests) {
    if (request != nullptr) request->answer(OutOfMemory(), {});
  }
}

// Examples that the model computes: a request without examples counts as one.
uint64_t ExamplesOf(const Request& request) { return std::max<uint64_t>(request.num_examples, 1); }

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::Start(std::unique_ptr<Model> model,
                                                        const BatchingOptions& batching,
                                                        float sample_tolerance, size_t threads,
                                                        const LoadContext& context) {
  if (model == nullptr) return InvalidArgument("model: expected one, got none");
  RETURN_IF_ERROR(CheckTolerance(sample_tolerance));
  BatchingOptions options = batching;
  options.slots = model->slots();
  ASSIGN_OR_RETURN(const BatchingOptions complete,
                   CompleteOptions(options, model->manifest().limits));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(std::move(model), complete, threads));
  Status status = runner->WarmUp(sample_tolerance, context);
  if (status.ok()) return runner;
  (void)RunIn(context.background, [&runner] {  // Freeing its memory takes time.
    runner.reset();
    return Status();
  });
  return status;
}

ModelRunner::ModelRunner(std::unique_ptr<Model> model, const BatchingOptions& complete,
                         size_t threads)
    : model_(std::move(model)),
      batching_(complete),
      limits_(LesserOf(manifest().limits, batching_)),
      budget_(BudgetOf(batching_)),
      names_(manifest().schema),
      telemetry_({.sparse_inputs = manifest().schema.sparse.size(),
                  .full_batch_examples = batching_.merge_examples}),
      executor_(model_.get()),
      completer_(&executor_, &telemetry_) {
  for (size_t thread = 0; thread < threads; ++thread) {
    buffers_.push_back(std::make_shared<Slot>(batching_.slots - 1 - thread));
  }
  for (size_t thread = 1; thread < threads; ++thread) {
    others_.push_back(std::make_unique<TaskThread>([this, thread] { (*work_)(thread); }));
  }
}

Status ModelRunner::WarmUp(float tolerance, const LoadContext& context) {
  // Larger requests are rare.
  const size_t examples = std::min<size_t>(batching_.merge_examples, budget_.examples);
  const ChunkBudget full = {.examples = static_cast<uint32_t>(examples), .ids = budget_.ids};
  const auto run_full_batch = [&](Slot* buffers) {
    return CheckFullBatch(*model_, full, tolerance, &executor_, buffers, context.control);
  };
  RETURN_IF_ERROR(RunIn(context.background, [&]() -> Status {
    Slot first;
    RETURN_IF_ERROR(CheckSamples(*model_, tolerance, &executor_, &first, context.control));
    for (size_t number = 0; number < batching_.slots; ++number) {
      Slot buffers(number);
      RETURN_IF_ERROR(run_full_batch(&buffers));
    }
    return {};
  }));
  const MutexLock lock(mutex_);
  std::vector<Status> statuses(1 + others_.size());
  OnThreads(statuses.size(), [&](size_t thread) {
    if (thread > 0) statuses[thread] = run_full_batch(buffers_[thread].get());
  });
  const auto bad =
      std::ranges::find_if(statuses, [](const Status& status) { return !status.ok(); });
  return bad == statuses.end() ? Status() : *bad;
}

Status ModelRunner::Admit(Request* request) {
  Status status = CheckRequest(*model_, limits_, request);
  if (status.ok()) telemetry_.CountAdmitted(request->num_examples, request->num_ids);
  return status;
}

void ModelRunner::PredictMerged(Batch requests) {
  std::erase_if(requests, [this](const std::unique_ptr<Request>& request) {
    Status status = Guarded("the call failed: ", [&] { return Admit(request.get()); });
    if (status.ok()) return false;
    request->answer(std::move(status), {});
    return true;
  });
  const MutexLock lock(mutex_);
  std::vector<Share> shares;
  Batch wholes;
  try {
    Divide(&requests, &wholes, &shares);
    OnThreads(shares.size(), [&](size_t thread) {
      for (Batch& batch : shares[thread].batches) {
        Due due;
        due.lease.buffers = buffers_[thread];
        due.batch = std::move(batch);
        completer_.Run(std::move(due), nullptr);
      }
    });
  } catch (const std::exception&) {  // Out of memory.
    for (Share& share : shares) {
      for (Batch& batch : share.batches) AnswerLeft(&batch);
    }
  }
  AnswerLeft(&requests);
  AnswerLeft(&wholes);  // Split requests of which a chunk did not run.
}

void ModelRunner::Divide(Batch* requests, Batch* wholes, std::vector<Share>* shares) const {
  uint64_t examples = 0;
  for (const auto& request : *requests) examples += ExamplesOf(*request);
  const uint64_t most = DivideUp(examples, kShareExamples);
  shares->resize(std::clamp<uint64_t>(most, 1, 1 + others_.size()));
  const auto share = static_cast<uint32_t>(
      std::clamp<uint64_t>(DivideUp(examples, shares->size()), 1, budget_.examples));
  wholes->reserve(requests->size());
  for (auto& request : *requests) {
    if (IsLarger(*request, {.examples = share, .ids = budget_.ids})) {
      wholes->push_back(std::move(request));
      Cut(&wholes->back(), share, shares);
    } else {
      Give(request, shares);
    }
  }
}

void ModelRunner::Cut(std::unique_ptr<Request>* whole, uint32_t examples,
                      std::vector<Share>* shares) const {
  const auto split = std::make_shared<SplitRequest>(
      &manifest().schema, ChunkBudget{.examples = examples, .ids = budget_.ids}, **whole,
      [whole](const SplitRequest&) { return std::move(*whole); });
  while (split->has_next()) {
    std::unique_ptr<Request> chunk = split->TakeNext(split);
    Give(chunk, shares);
  }
}

void ModelRunner::Give(std::unique_ptr<Request>& request, std::vector<Share>* shares) const {
  Share& share = *std::ranges::min_element(*shares, {}, &Share::examples);
  const uint64_t examples = ExamplesOf(*request);
  const bool fits = share.last.examples + examples <= budget_.examples &&
                    share.last.ids + request->num_ids <= budget_.ids;
  if (share.batches.empty() || !fits) {
    share.batches.emplace_back();
    share.last = {};
  }
  share.last.examples += examples;
  share.last.ids += request->num_ids;
  share.examples += examples;
  share.batches.back().push_back(std::move(request));
}

void ModelRunner::OnThreads(size_t threads, const std::function<void(size_t)>& work) {
  work_ = &work;
  for (size_t i = 1; i < threads; ++i) others_[i - 1]->Start();
  work(0);
  for (size_t i = 1; i < threads; ++i) others_[i - 1]->Wait();
}

}  // namespace embershard
