#include "engine/rerun.h"

#include <cstddef>
#include <utility>

namespace embershard {
namespace {

using Requests = std::span<const std::unique_ptr<Request>>;

class Halving {
 public:
  Halving(BatchRunner* runner, Requests requests, const Status& failed, const IsWanted& wanted,
          BatchTimes* times)
      : runner_(runner),
        requests_(requests),
        wanted_(wanted),
        times_(times),
        responses_(requests.size(), failed) {}

  std::vector<Result<Response>> Run() {
    Split(0, requests_.size());
    return std::move(responses_);
  }

 private:
  // Of a part that has failed.
  void Split(size_t first, size_t count) {
    if (count < 2) return;
    RunPart(first, count / 2);
    RunPart(first + count / 2, count - count / 2);
  }

  void RunPart(size_t first, size_t count) {
    while (count > 0 && !wanted_(*requests_[first])) {
      responses_[first] = Late();
      ++first;
      --count;
    }
    while (count > 0 && !wanted_(*requests_[first + count - 1])) {
      responses_[first + count - 1] = Late();
      --count;
    }
    if (count == 0 || IsUsedUp()) return;
    BatchTimes times;
    Result<std::vector<Result<Response>>> part =
        runner_->Run(requests_.subspan(first, count), &times);
    ++times_->reruns;
    times_->lookup_us += times.lookup_us;
    times_->dense_us += times.dense_us;
    if (part.ok()) succeeded_ = true;
    for (size_t i = 0; i < count; ++i) {
      responses_[first + i] = part.ok() ? std::move((*part)[i]) : Result<Response>(part.status());
    }
    if (!part.ok()) Split(first, count);
  }

  bool IsUsedUp() const { return times_->reruns >= (succeeded_ ? kRerunsMax : kRerunsInVain); }

  // Whoever takes the answer from a request that is late has told its client already, or is about
  // to say the same.
  static Status Late() {
    return {StatusCode::kDeadlineExceeded, "the deadline passed while the request ran"};
  }

  BatchRunner* const runner_;
  const Requests requests_;
  const IsWanted& wanted_;
  BatchTimes* const times_;
  std::vector<Result<Response>> responses_;
  bool succeeded_ = false;
};

}  // namespace

std::vector<Result<Response>> RunInHalves(BatchRunner* runner, Requests requests,
                                          const Status& failed, const IsWanted& wanted,
                                          BatchTimes* times) {
  return Halving(runner, requests, failed, wanted, times).Run();
}

}  // namespace embershard
