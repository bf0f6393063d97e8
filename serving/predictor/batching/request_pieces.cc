#include "batching/request_pieces.h"

#include <algorithm>
#include <cassert>
#include <exception>
#include <utility>

#include "base/out_of_memory.h"
#include "batching/keep.h"

namespace embershard {
namespace {

uint64_t DivideUp(uint64_t number, uint64_t by) { return (number + by - 1) / by; }

// The ids of a list that count.
uint64_t KeptOf(const SparseInput& input, const SparseView& view, size_t list) {
  return Keeps(input, static_cast<size_t>(view.lengths[list])).count;
}

// The views of the first `examples`, by which `rest` becomes shorter.
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
    first.num_kept += KeptOf(input, *rest, list);
  }
  first.lengths = rest->lengths.Slice(0, examples);
  first.values = rest->values.Slice(0, values);
  rest->lengths = rest->lengths.Slice(examples, rest->lengths.size() - examples);
  rest->values = rest->values.Slice(values, rest->values.size() - values);
  rest->num_kept -= first.num_kept;
  if (input.weighted) {
    first.weights = rest->weights.Slice(0, values);
    rest->weights = rest->weights.Slice(values, rest->weights.size() - values);
  }
  return first;
}

// Both by input.
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

}  // namespace

RequestPieces::RequestPieces(const Schema* schema, const PieceBudget& budget, const Request& whole,
                             TakeWhole take_whole)
    : schema_(schema),
      take_whole_(std::move(take_whole)),
      bytes_(whole.bytes),
      num_examples_(whole.num_examples),
      num_ids_(whole.num_ids) {
  assert(IsLarger(whole, budget));
  for (size_t i = 0; i < schema->sparse.size(); ++i) {
    if (schema->sparse[i].scope == Scope::kRequest) request_ids_ += whole.sparse[i].num_kept;
  }
  // Equal ones: a short last one would cost as much as its batch.
  const uint64_t pieces = DivideUp(whole.num_examples, budget.examples);
  piece_examples_ = static_cast<uint32_t>(DivideUp(whole.num_examples, pieces));
  piece_ids_ = std::max(budget.ids - std::min(request_ids_, budget.ids), DivideUp(budget.ids, 2));
  left_ = {.examples = whole.num_examples, .ids = num_ids_};
  left_.requests = PiecesOf(left_);

  rest_.num_examples = whole.num_examples;
  rest_.dense = whole.dense;
  rest_.sparse = whole.sparse;
  rest_.outputs_wanted = whole.outputs_wanted;
  rest_.priority = whole.priority;
  rest_.arrival = whole.arrival;
  CutNext();
}

std::unique_ptr<Request> RequestPieces::TakeNext(const std::shared_ptr<RequestPieces>& self) {
  assert(has_next() && self.get() == this);
  next_->bytes = self;
  left_.examples -= next_->num_examples;
  left_.ids -= next_->num_ids - request_ids_;
  left_.requests = PiecesOf(left_);
  has_next_.store(false, std::memory_order_relaxed);
  return std::move(next_);
}

uint64_t RequestPieces::PiecesOf(const BatchSize& size) const {
  return std::max(DivideUp(size.examples, piece_examples_),
                  DivideUp(size.ids - request_ids_, piece_ids_));
}

BatchSize RequestPieces::SizeOfNext() const {
  BatchSize size;
  const uint32_t most = std::min(piece_examples_, rest_.num_examples);
  while (size.examples < most) {
    uint64_t ids = 0;
    for (size_t i = 0; i < schema_->sparse.size(); ++i) {
      const SparseView& view = rest_.sparse[i];
      if (schema_->sparse[i].scope == Scope::kRequest || view.lengths.empty()) continue;
      ids += KeptOf(schema_->sparse[i], view, size.examples);
    }
    if (size.examples > 0 && size.ids + ids > piece_ids_) break;
    ++size.examples;
    size.ids += ids;
  }
  return size;
}

void RequestPieces::CutNext() {
  if (rest_.num_examples == 0) return;
  const BatchSize size = SizeOfNext();
  auto piece = std::make_unique<Request>();
  piece->num_examples = static_cast<uint32_t>(size.examples);
  piece->first_example = rest_.first_example;
  piece->num_ids = request_ids_ + size.ids;
  piece->outputs_wanted = rest_.outputs_wanted;
  piece->priority = rest_.priority;
  piece->arrival = rest_.arrival;
  for (size_t i = 0; i < schema_->dense.size(); ++i) {
    const bool shared = schema_->dense[i].scope == Scope::kRequest;
    piece->dense.push_back(shared ? rest_.dense[i] : CutFirst(size.examples, &rest_.dense[i]));
  }
  for (size_t i = 0; i < schema_->sparse.size(); ++i) {
    const SparseInput& input = schema_->sparse[i];
    const bool shared = input.scope == Scope::kRequest;
    piece->sparse.push_back(shared ? rest_.sparse[i]
                                   : CutFirst(input, size.examples, &rest_.sparse[i]));
  }
  // The piece keeps this alive from where it is taken.
  piece->answer = [this](Status status, Response response) {
    End(std::move(status), std::move(response));
  };
  rest_.num_examples -= piece->num_examples;
  rest_.first_example += piece->num_examples;
  // Those of the request scope are equal in all pieces.
  std::erase_if(rest_.outputs_wanted, [this](size_t output) {
    return schema_->outputs[output].scope == Scope::kRequest;
  });
  next_ = std::move(piece);
}

void RequestPieces::End(Status status, Response response) {
  AddTiming(response.timing);
  const bool is_last = rest_.num_examples == 0;
  if (status.ok()) {
    try {
      Join(std::move(response));
      CutNext();
    } catch (const std::exception&) {  // Memory has run out.
      status = OutOfMemory();
    }
  }
  if (status.ok() && !is_last) {
    has_next_.store(true, std::memory_order_release);  // From here on all is the next one's.
    return;
  }
  const std::unique_ptr<Request> whole = take_whole_(*this);
  if (whole == nullptr) return;
  joined_.num_ids = num_ids_;
  if (!status.ok()) {
    joined_.outputs.clear();
    joined_.unknown_ids.clear();
  }
  whole->answer(std::move(status), std::move(joined_));
}

void RequestPieces::AddTiming(const Timing& timing) {
  if (!begun_) joined_.timing.queue_us = timing.queue_us;
  begun_ = true;
  joined_.timing.lookup_us += timing.lookup_us;
  joined_.timing.dense_us += timing.dense_us;
  joined_.timing.total_us = timing.total_us;
}

void RequestPieces::Join(Response response) {
  AddCounts(response.unknown_ids, &joined_.unknown_ids);
  if (joined_.outputs.empty()) {
    joined_.outputs = std::move(response.outputs);
    for (ResponseOutput& output : joined_.outputs) {
      const OutputSpec& spec = schema_->outputs[output.output];
      if (spec.scope == Scope::kExample) output.values.reserve(num_examples_ * spec.width);
    }
    return;
  }
  for (const ResponseOutput& further : response.outputs) {
    const auto output = std::ranges::find(joined_.outputs, further.output, &ResponseOutput::output);
    output->values.insert(output->values.end(), further.values.begin(), further.values.end());
  }
}

}  // namespace embershard
