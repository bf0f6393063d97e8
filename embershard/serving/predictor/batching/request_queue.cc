#include "batching/request_queue.h"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

#include "batching/split_request.h"

namespace embershard {
namespace {

constexpr size_t kEmptyPlaces = 64;  // Up to this many empty places are kept.
constexpr size_t kLooksAt = 1024;

}  // namespace

void RequestQueue::Add(std::unique_ptr<Request>& request) {
  const Clock::time_point deadline = request->deadline;
  const auto behind = std::upper_bound(
      waiting_.begin(), waiting_.end(), deadline,
      [](Clock::time_point mine, const Place& place) { return mine < place.deadline; });
  const auto place = waiting_.insert(behind, Place{deadline, turns_, SizeLeft(*request), nullptr});
  request->turn = turns_++;
  place->request = std::move(request);
}

BatchSize RequestQueue::DueAfter(Clock::time_point deadline) const {
  BatchSize after;
  size_t looked_at = 0;
  for (auto place = waiting_.rbegin();
       place != waiting_.rend() && place->deadline > deadline && looked_at < kLooksAt;
       ++place, ++looked_at) {
    if (place->request != nullptr) after += place->size;
  }
  return after;
}

std::unique_ptr<Request> RequestQueue::TakeFirst() {
  std::unique_ptr<Request> taken = std::move(waiting_.front().request);
  ++empty_places_;
  DropEmpty();
  return taken;
}

const Request* RequestQueue::next() const {
  for (const Place& place : waiting_) {
    const Request* const request = place.request.get();
    if (request == nullptr) continue;
    if (request->split == nullptr || request->split->has_next()) return request;
  }
  return nullptr;
}

std::unique_ptr<Request> RequestQueue::TakeChunk(const Request& request) {
  const auto place = PlaceOf(request);
  const std::shared_ptr<SplitRequest>& split = place->request->split;
  std::unique_ptr<Request> chunk = split->TakeNext(split);
  place->size = split->left();
  return chunk;
}

std::unique_ptr<Request> RequestQueue::Take(const Request& request) {
  std::unique_ptr<Request> taken = std::move(PlaceOf(request)->request);
  ++empty_places_;
  DropEmpty();
  return taken;
}

std::deque<RequestQueue::Place>::iterator RequestQueue::PlaceOf(const Request& request) {
  const auto place = std::lower_bound(
      waiting_.begin(), waiting_.end(), request, [](const Place& here, const Request& sought) {
        return std::tie(here.deadline, here.turn) < std::tie(sought.deadline, sought.turn);
      });
  assert(place != waiting_.end() && place->request.get() == &request);
  return place;
}

void RequestQueue::DropEmpty() {
  const auto is_empty = [](const Place& place) { return place.request == nullptr; };
  for (; !waiting_.empty() && is_empty(waiting_.front()); --empty_places_) waiting_.pop_front();
  if (empty_places_ > kEmptyPlaces && empty_places_ > waiting_.size() / 2) {
    std::erase_if(waiting_, is_empty);
    empty_places_ = 0;
  }
}

}  // namespace embershard
