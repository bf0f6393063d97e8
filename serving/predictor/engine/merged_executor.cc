#include "engine/merged_executor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/divide_up.h"

namespace embershard {
namespace {

void AnswerLeft(Batch* requests) {
  for (const auto& request : *requests) {
    if (request != nullptr) request->answer(OutOfMemory(), {});
  }
}

// One without examples is computed as well.
uint64_t ExamplesOf(const Request& request) { return std::max<uint64_t>(request.num_examples, 1); }

}  // namespace

MergedExecutor::MergedExecutor(const Schema* schema, const ChunkBudget& budget,
                               RequestCompleter* runner, size_t threads)
    : schema_(schema), budget_(budget), completer_(runner) {
  for (size_t thread = 0; thread < threads; ++thread) {
    buffers_.push_back(std::make_shared<Slot>());
  }
  for (size_t thread = 1; thread < threads; ++thread) {
    others_.push_back(std::make_unique<TaskThread>([this, thread] { (*work_)(thread); }));
  }
}

Status MergedExecutor::WarmUp(const std::function<Status(Slot* buffers)>& work) {
  const MutexLock lock(mutex_);
  std::vector<Status> statuses(1 + others_.size());
  OnThreads(statuses.size(), [&](size_t thread) {
    if (thread > 0) statuses[thread] = work(buffers_[thread].get());
  });
  const auto bad = std::ranges::find_if(statuses, [](const Status& each) { return !each.ok(); });
  return bad == statuses.end() ? Status() : *bad;
}

void MergedExecutor::Run(Batch requests) {
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
        completer_->Run(std::move(due), nullptr);
      }
    });
  } catch (const std::exception&) {  // Memory has run out.
    for (Share& share : shares) {
      for (Batch& batch : share.batches) AnswerLeft(&batch);
    }
  }
  AnswerLeft(&requests);
  AnswerLeft(&wholes);  // Of which not every chunk was run.
}

void MergedExecutor::Divide(Batch* requests, Batch* wholes, std::vector<Share>* shares) const {
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

void MergedExecutor::Cut(std::unique_ptr<Request>* whole, uint32_t examples,
                         std::vector<Share>* shares) const {
  const auto split = std::make_shared<SplitRequest>(
      schema_, ChunkBudget{.examples = examples, .ids = budget_.ids}, **whole,
      [whole](const SplitRequest&) { return std::move(*whole); });
  while (split->has_next()) {
    std::unique_ptr<Request> chunk = split->TakeNext(split);
    Give(chunk, shares);
  }
}

void MergedExecutor::Give(std::unique_ptr<Request>& request, std::vector<Share>* shares) const {
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

void MergedExecutor::OnThreads(size_t threads, const std::function<void(size_t)>& work) {
  work_ = &work;
  for (size_t i = 1; i < threads; ++i) others_[i - 1]->Start();
  work(0);
  for (size_t i = 1; i < threads; ++i) others_[i - 1]->Wait();
}

}  // namespace embershard
