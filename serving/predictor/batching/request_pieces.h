// A request larger than a batch: cut into pieces that run one after the other, their outputs
// joined into one answer.
//
//   whole    waits in the queue until it is answered, once, whatever has become of its pieces
//   piece    a request of its own, made of views over the same bytes; a batch takes it from the
//            whole, and the next is cut when it has run

#ifndef EMBERSHARD_BATCHING_REQUEST_PIECES_H_
#define EMBERSHARD_BATCHING_REQUEST_PIECES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "batching/batch_costs.h"
#include "batching/request.h"
#include "package/manifest.h"

namespace embershard {

// Most that a piece may hold, at least 1 each.
struct PieceBudget {
  uint32_t examples = 1;
  uint64_t ids = 1;
};

// Whether `request` has to be cut. One example cannot be, however many ids it has.
inline bool IsLarger(const Request& request, const PieceBudget& budget) {
  return request.num_examples > 1 &&
         (request.num_examples > budget.examples || request.num_ids > budget.ids);
}

// What is the whole's and what its pieces share. A piece keeps it alive. From where a piece is
// taken until it has run, all but has_next() and left() is for that piece alone.
class RequestPieces {
 public:
  // Gives up the whole, which is to be answered; null where it has been.
  using TakeWhole = std::function<std::unique_ptr<Request>(const RequestPieces&)>;

  // Keeps the views of `whole`, and its bytes. `schema` must outlive this. Pieces have equally many
  // examples, as far as their ids fit the budget. The ids of the request scope are in each piece:
  // where they take more than half of the budget, half is left for the others all the same.
  // REQUIRES: `whole` passed CheckRequest(), and IsLarger().
  RequestPieces(const Schema* schema, const PieceBudget& budget, const Request& whole,
                TakeWhole take_whole);

  // Whether a piece may be taken: there is none while one runs.
  bool has_next() const { return has_next_.load(std::memory_order_acquire); }
  const Request& next() const { return *next_; }

  // What no batch has taken yet. `requests`: into how many pieces it makes, as far as is known.
  const BatchSize& left() const { return left_; }

  // REQUIRES: has_next(), and `self` is this. Never throws.
  std::unique_ptr<Request> TakeNext(const std::shared_ptr<RequestPieces>& self);

  // The queue's own, under its lock: the whole while it waits there, else null.
  Request* waiting = nullptr;

 private:
  // A piece has run. Cuts the next, or answers the whole: after the last, or the first that failed.
  void End(Status status, Response response);
  void Join(Response response);
  void AddTiming(const Timing& timing);
  void CutNext();
  // How many examples the next piece has, and their ids.
  BatchSize SizeOfNext() const;
  uint64_t PiecesOf(const BatchSize& size) const;

  const Schema* const schema_;
  const TakeWhole take_whole_;
  const std::shared_ptr<const void> bytes_;
  const uint32_t num_examples_;
  const uint64_t num_ids_;
  uint64_t request_ids_ = 0;  // In request scope: each piece has them.
  uint32_t piece_examples_;   // Most examples of a piece.
  uint64_t piece_ids_;        // Most ids of a piece in example scope.
  Request rest_;              // What is not cut yet; its views begin at its first example.
  std::unique_ptr<Request> next_;
  std::atomic<bool> has_next_ = true;  // Hands next_ over to the queue.
  BatchSize left_;
  bool begun_ = false;  // A piece has run.
  Response joined_;
};

// What no batch has taken of a request that waits. `requests`: as many as it has pieces.
inline BatchSize SizeLeft(const Request& request) {
  if (request.pieces != nullptr) return request.pieces->left();
  return {.requests = 1, .examples = request.num_examples, .ids = request.num_ids};
}

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_REQUEST_PIECES_H_
