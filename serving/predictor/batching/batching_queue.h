// Feeds a BatchFormer the real time, from any thread, and has as many batches run at a time as
// there are slots. An idle model runs what there is at once, and a further slot does but for a
// little that another will soon be free for; else requests gather.
//
//   thread         what it does
//   any            Submit(): leaves a request here; where the model is idle and has little to do
//                  for it, runs it
//   a slot's       one of SlotThreads, as many as slots: run batches of what has gathered
//   the watch's    answers those whose deadline passes while they wait, or while they run; begins a
//                  further slot where a batch is late

#ifndef EMBERSHARD_BATCHING_BATCHING_QUEUE_H_
#define EMBERSHARD_BATCHING_BATCHING_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "batching/batch_former.h"
#include "batching/dispatch_policy.h"
#include "batching/forecast.h"
#include "batching/late.h"
#include "batching/request.h"
#include "batching/running_batch.h"
#include "batching/slot_threads.h"

namespace embershard {

// Thread-safe. Every accepted request is answered exactly once, at shutdown too.
class BatchingQueue final : private SlotWork {
 public:
  // Called one batch at a time in each slot, with at least one request, on one of the threads
  // or from Submit(). Must answer every request in it that has an `answer` when
  // EndRun(due.slot) has returned, which it must call in between: what is in
  // due.batch is not to be answered, and must not go, before that. Must not throw.
  using RunBatch = std::function<void(Due due, BatchingQueue* queue)>;
  // Answers one that is late. Any thread, at any time; must not throw.
  using AnswerLate = std::function<void(Late late)>;
  // Tells the time. Any thread; must not go backwards.
  using Now = std::function<Clock::time_point()>;

  // `threads` run the batches, and may run those of others. REQUIRES: options as CompleteOptions()
  // gives them; as many threads as slots.
  BatchingQueue(const BatchingOptions& options, RunBatch run_batch, AnswerLate answer_late, Now now,
                std::shared_ptr<SlotThreads> threads);
  // With threads of its own.
  BatchingQueue(const BatchingOptions& options, RunBatch run_batch, AnswerLate answer_late,
                Now now = Clock::now);
  BatchingQueue(const BatchingQueue&) = delete;
  BatchingQueue& operator=(const BatchingQueue&) = delete;
  ~BatchingQueue() override;  // Calls Stop().

  // Waits for the model at most as long as BatchingOptions::max_inline, as far as that can be
  // predicted, and never for a batch of others. Ownership as in BatchFormer::Add().
  [[nodiscard]] Admission Submit(std::unique_ptr<Request>& request);

  // As BatchFormer::RoomFor(), of the moment: before a request is cut, which costs.
  Admission RoomFor(const Request& request) const;

  // In how many slots the request would run at once if it came cut, as far as that is worth it: one
  // unless others stand idle, nothing waits, and it is known to take long.
  size_t SlotsFor(const Request& request) const;

  // As BatchFormer::RetryAfter(), of the moment.
  std::chrono::nanoseconds RetryAfter(const Request& refused) const;

  // Answers the ticket's request, unless that has happened, and lets go of what it holds here:
  // all if it waits; if it runs, the model goes on. `why` as in Late. Stop() does not wait for this
  // call, which the queue must outlive.
  void Cancel(Ticket* ticket, StatusReason why);

  // Takes a request out that is cut and is to be answered; null where it has been.
  std::unique_ptr<Request> Take(const RequestPieces& pieces);

  // For RunBatch: whether a request of the batch has not been answered, and has time left.
  bool IsWanted(const Request& request) const;

  // For RunBatch: the model has done with the batch of this slot.
  void EndRun(size_t slot);

  // Refuses new requests, runs the accepted ones, and returns when the last has
  // been answered. Safe to call more than once, but not from `run_batch`.
  void Stop();

  // Of the moment; for metrics.
  QueueSize queued() const;

 private:
  bool RunIfAny(std::unique_lock<std::mutex>* lock) override;
  void Watch();
  // Has the watch look at this time at the latest. REQUIRES: mutex_ is held.
  void WakeWatchBy(Clock::time_point time);
  // Has a thread run what waits, if it can be; else the watch look when it may be. Who is busy
  // looks for more by itself. REQUIRES: mutex_ is held.
  void WakeForRest();
  // Forms a batch and runs it. REQUIRES: `lock` holds mutex_, which it also does behind it, and
  // CanRun().
  void RunOne(std::unique_lock<std::mutex>* lock);
  // What a piece of a request takes, and no less, that is cut because slots stand idle.
  static constexpr std::chrono::microseconds kWorthAPiece{500};

  // Whether a slot is free, and there is enough for it. REQUIRES: mutex_ is held.
  bool CanRun() const override;
  // REQUIRES: mutex_ is held; a slot is free, another runs, and something can be taken.
  DispatchQuestion Question() const;
  // When CanRun() has to be asked again of what waits beside a free slot; max() where nothing does.
  Clock::time_point LooksAgain() const;
  bool IsIdle() const { return free_.size() == running_.size(); }
  // How long what waits will take as one batch; zero where that is not known.
  std::chrono::nanoseconds ForecastOfAll() const;
  // Whether all has been run, and no more will come. REQUIRES: mutex_ is held.
  bool IsDone() const { return stopping_ && former_.empty() && IsIdle(); }
  // For Stop(). REQUIRES: mutex_ is held.
  void TellIfDone() {
    if (IsDone()) done_.notify_all();
  }
  // Whether all that waits is better run at once by who brings it. REQUIRES: mutex_ is held.
  bool ShouldRunInline() const;
  // Whether all that waits is known to take no longer than `time`. REQUIRES: mutex_ is held.
  bool IsInline(std::chrono::nanoseconds time) const;
  // One whose deadline has passed. REQUIRES: mutex_ is held.
  std::optional<Late> TakeExpired(Clock::time_point now);

  const std::chrono::nanoseconds max_inline_;
  const RunBatch run_batch_;
  const AnswerLate answer_late_;
  const Now now_;

  const std::shared_ptr<SlotThreads> threads_;
  std::mutex& mutex_;                  // That of the threads.
  std::condition_variable deadline_;   // Signalled when wake_ becomes earlier, or to stop.
  std::condition_variable done_;       // Signalled when IsDone() becomes true.
  BatchFormer former_;                 // Guarded by mutex_.
  std::vector<RunningBatch> running_;  // Guarded by mutex_. By slot.
  std::vector<size_t> free_;  // Guarded by mutex_. Slots in which none is run, or answered.
  Forecast forecast_;         // Guarded by mutex_.
  Clock::time_point wake_;    // Guarded by mutex_. When the watch looks next.
  bool stopping_ = false;     // Guarded by mutex_.
  bool stopped_ = false;      // Guarded by mutex_. All have been answered.

  std::once_flag stopped_once_;
  std::thread watch_;  // Last, so that Watch() sees every field built.
};

}  // namespace embershard

#endif  // EMBERSHARD_BATCHING_BATCHING_QUEUE_H_
