#include "batching/split_request.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

#include "base/divide_up.h"
#include "batching/truncation.h"

namespace embershard {
namespace {

uint64_t KeptOf(const SparseInput& input, const SparseView& view, size_t list) {
  return Truncate(input, static_cast<size_t>(view.lengths[list])).count;
}

// Moves the views of the first `examples` examples out of `rest`.
DenseView CutFirst(size_t examples, DenseView* rest) {
  if (rest->values.empty()) return {};
  const size_t size = rest->values.size();
  const size_t cut = std::min(examples * rest->stride, size);
  const DenseView first = {rest->values.Slice(0, cut), rest->stride};
  rest->values = rest->values.Slice(cut, size - cut);
  return first;
}

SparseView CutFirst(const SparseInput& input, size_t examples, SparseView* rest) {
  SparseView first;
  if (rest->lengths.empty()) return first;
  size_t values = 0;
  for (size_t list = 0; list < examples; ++list) {
    values += static_cast<size_t>(rest->lengths[list]);
    first.num_ids += KeptOf(input, *rest, list);
  }
  first.lengths = rest->lengths.Slice(0, examples);
  first.values = rest->values.Slice(0, values);
  rest->lengths = rest->lengths.Slice(examples, rest->lengths.size() - examples);
  rest->values = rest->values.Slice(values, rest->values.size() - values);
  rest->num_ids -= first.num_ids;
  if (input.weighted) {
    first.weights = rest->weights.Slice(0, values);
    rest->weights = rest->weights.Slice(values, rest->weights.size() - values);
  }
  return first;
}

// Both are ordered by input.
void AddCounts(const std::vector<UnknownIdCount>& counts, std::vector<UnknownIdCount>* sums) {
  for (const UnknownIdCount& count : counts) {
    const auto place =
        std::ranges::lower_bound(*sums, count.sparse_input, {}, &UnknownIdCount::sparse_input);
    if (place != sums->end() && place->sparse_input == count.sparse_input) {
      place->count += count.count;
    } else {
      sums->insert(place, count);
    }
  }
}

// The bytes under its views are not counted.
uint64_t BytesOf(const Request& chunk) {
  return sizeof(Request) + chunk.dense.size() * sizeof(DenseView) +
         chunk.sparse.size() * sizeof(SparseView);
}

}  // namespace

SplitRequest::SplitRequest(const Schema* schema, const ChunkBudget& budget, const Request& whole,
                           TakeWhole take_whole)
    : schema_(schema),
      take_whole_(std::move(take_whole)),
      bytes_(whole.bytes),
      num_examples_(whole.num_examples),
      outputs_wanted_(whole.outputs_wanted) {
  assert(IsLarger(whole, budget));
  for (size_t i = 0; i < schema->sparse.size(); ++i) {
    if (schema->sparse[i].scope == Scope::kRequest) request_ids_ += whole.sparse[i].num_ids;
  }
  Request rest;
  rest.num_examples = whole.num_examples;
  // Equal sizes: a short last chunk would still cost a batch.
  const uint64_t chunks = DivideUp(whole.num_examples, budget.examples);
  chunk_.examples = static_cast<uint32_t>(DivideUp(whole.num_examples, chunks));
  chunk_.ids = std::max(budget.ids - std::min(request_ids_, budget.ids), DivideUp(budget.ids, 2));
  rest.priority = whole.priority;
  rest.is_copy = whole.is_copy;
  rest.arrival = whole.arrival;
  rest.outputs_wanted = whole.outputs_wanted;
  rest.dense = whole.dense;
  rest.sparse = whole.sparse;
  while (rest.num_examples > 0) chunks_.push_back(Cut(&rest));
  left_ = {.requests = chunks_.size(), .examples = whole.num_examples, .ids = whole.num_ids};
  for (const auto& chunk : chunks_) held_bytes_ += BytesOf(*chunk);
  joined_.num_ids = whole.num_ids;
}

BatchSize SplitRequest::SizeOfNext(const Request& rest) const {
  BatchSize size;
  const uint32_t most = std::min(chunk_.examples, rest.num_examples);
  while (size.examples < most) {
    uint64_t ids = 0;
    for (size_t i = 0; i < schema_->sparse.size(); ++i) {
      const SparseInput& input = schema_->sparse[i];
      if (input.scope == Scope::kRequest || rest.sparse[i].lengths.empty()) continue;
      ids += KeptOf(input, rest.sparse[i], size.examples);
    }
    if (size.examples > 0 && size.ids + ids > chunk_.ids) break;
    ++size.examples;
    size.ids += ids;
  }
  return size;
}

std::unique_ptr<Request> SplitRequest::Cut(Request* rest) {
  const BatchSize size = SizeOfNext(*rest);
  auto chunk = std::make_unique<Request>();
  chunk->num_examples = static_cast<uint32_t>(size.examples);
  chunk->first_example = rest->first_example;
  chunk->num_ids = request_ids_ + size.ids;
  chunk->outputs_wanted = rest->outputs_wanted;
  chunk->priority = rest->priority;
  chunk->is_copy = rest->is_copy;
  chunk->arrival = rest->arrival;
  for (size_t i = 0; i < schema_->dense.size(); ++i) {
    const bool shared = schema_->dense[i].scope == Scope::kRequest;
    chunk->dense.push_back(shared ? rest->dense[i] : CutFirst(size.examples, &rest->dense[i]));
  }
  for (size_t i = 0; i < schema_->sparse.size(); ++i) {
    const SparseInput& input = schema_->sparse[i];
    const bool shared = input.scope == Scope::kRequest;
    chunk->sparse.push_back(shared ? rest->sparse[i]
                                   : CutFirst(input, size.examples, &rest->sparse[i]));
  }
  // `this` stays valid: TakeNext() makes the chunk keep it alive.
  chunk->answer = [this, first = chunk->first_example](Status status, Response response) {
    End(first, std::move(status), std::move(response));
  };
  rest->num_examples -= chunk->num_examples;
  rest->first_example += chunk->num_examples;
  // Outputs in request scope are equal in all chunks, so that only the first chunk computes them.
  std::erase_if(rest->outputs_wanted, [this](size_t output) {
    return schema_->outputs[output].scope == Scope::kRequest;
  });
  return chunk;
}

std::unique_ptr<Request> SplitRequest::TakeNext(const std::shared_ptr<SplitRequest>& self) {
  assert(has_next() && self.get() == this);
  std::unique_ptr<Request> chunk = std::move(chunks_[taken_++]);
  chunk->bytes = self;
  left_.requests -= 1;
  left_.examples -= chunk->num_examples;
  left_.ids -= chunk->num_ids - (left_.requests > 0 ? request_ids_ : 0);
  return chunk;
}

void SplitRequest::End(uint32_t first_example, Status status, Response response) {
  Response joined;
  {
    const MutexLock lock(mutex_);
    if (failed_) return;
    AddTiming(response.timing);
    if (status.ok()) {
      try {
        Join(first_example, std::move(response));
      } catch (const std::exception&) {  // Out of memory.
        status = OutOfMemory();
      }
    }
    if (status.ok() && ended_ < chunks_.size()) return;
    failed_ = !status.ok();
    joined = std::move(joined_);  // No other chunk uses it after this.
  }
  const std::unique_ptr<Request> whole = take_whole_(*this);
  if (whole == nullptr) return;
  if (!status.ok()) {
    joined.outputs.clear();
    joined.unknown_ids.clear();
  }
  whole->answer(std::move(status), std::move(joined));
}

void SplitRequest::AddTiming(const Timing& timing) {
  Timing& joined = joined_.timing;
  joined.queue_us = ended_ == 0 ? timing.queue_us : std::min(joined.queue_us, timing.queue_us);
  joined.lookup_us += timing.lookup_us;
  joined.dense_us += timing.dense_us;
  joined.total_us = std::max(joined.total_us, timing.total_us);
}

void SplitRequest::Join(uint32_t first_example, Response response) {
  if (joined_.outputs.empty()) MakePlaces();
  AddCounts(response.unknown_ids, &joined_.unknown_ids);
  for (ResponseOutput& part : response.outputs) {
    const auto output = std::ranges::find(joined_.outputs, part.output, &ResponseOutput::output);
    const OutputSpec& spec = schema_->outputs[part.output];
    if (spec.scope == Scope::kRequest) {
      output->values = std::move(part.values);
    } else {
      std::ranges::copy(part.values, output->values.begin() + first_example * spec.width);
    }
  }
  ++ended_;
}

void SplitRequest::MakePlaces() {
  for (const size_t output : outputs_wanted_) {
    const OutputSpec& spec = schema_->outputs[output];
    const size_t examples = spec.scope == Scope::kExample ? num_examples_ : 0;
    joined_.outputs.push_back({output, std::vector<float>(examples * spec.width)});
  }
}

}  // namespace embershard
