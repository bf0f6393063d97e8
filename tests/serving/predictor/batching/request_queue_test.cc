#include "batching/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace embershard {
namespace {

std::unique_ptr<Request> DueIn(int milliseconds, uint32_t name) {
  auto request = std::make_unique<Request>();
  request->deadline = Clock::time_point(std::chrono::milliseconds(milliseconds));
  request->num_examples = name;
  return request;
}

const Request* Add(RequestQueue* line, std::unique_ptr<Request> request) {
  const Request* const added = request.get();
  line->Add(request);
  EXPECT_EQ(request, nullptr);
  return added;
}

TEST(RequestQueue, GivesTheEarliestDeadlineFirstAndEqualOnesAsTheyCame) {
  RequestQueue line;
  EXPECT_TRUE(line.empty());
  Add(&line, DueIn(5, 1));
  Add(&line, DueIn(3, 2));
  Add(&line, DueIn(5, 3));
  Add(&line, DueIn(3, 4));
  std::vector<uint32_t> names;
  while (!line.empty()) {
    const uint32_t first = line.first().num_examples;
    names.push_back(line.TakeFirst()->num_examples);
    EXPECT_EQ(names.back(), first);
  }
  EXPECT_EQ(names, (std::vector<uint32_t>{2, 4, 1, 3}));
}

TEST(RequestQueue, LetsAnyOneLeaveOutOfItsTurn) {
  RequestQueue line;
  const Request* const first = Add(&line, DueIn(1, 1));
  const Request* const middle = Add(&line, DueIn(2, 2));
  Add(&line, DueIn(2, 3));
  const Request* const last = Add(&line, DueIn(4, 4));
  EXPECT_EQ(line.Take(*middle)->num_examples, 2U);
  EXPECT_EQ(line.Take(*last)->num_examples, 4U);
  Add(&line, DueIn(3, 5));
  EXPECT_EQ(line.Take(*first)->num_examples, 1U);
  EXPECT_EQ(line.TakeFirst()->num_examples, 3U);
  EXPECT_EQ(line.TakeFirst()->num_examples, 5U);
  EXPECT_TRUE(line.empty());
}

TEST(RequestQueue, AddsUpWhatIsDueLater) {
  RequestQueue line;
  Add(&line, DueIn(1, 100));
  const Request* const gone = Add(&line, DueIn(3, 200));
  Add(&line, DueIn(2, 40));
  auto request = DueIn(5, 8);
  request->num_ids = 7;
  line.Add(request);
  line.Take(*gone);
  const auto after = [&line](int milliseconds) {
    const BatchSize size =
        line.DueAfter(Clock::time_point(std::chrono::milliseconds(milliseconds)));
    return std::vector<uint64_t>{size.requests, size.examples, size.ids};
  };
  EXPECT_EQ(after(0), (std::vector<uint64_t>{3, 148, 7}));
  EXPECT_EQ(after(1), (std::vector<uint64_t>{2, 48, 7}));
  EXPECT_EQ(after(2), (std::vector<uint64_t>{1, 8, 7}));
  EXPECT_EQ(after(5), (std::vector<uint64_t>{0, 0, 0}));
}

TEST(RequestQueue, LooksAtNoMoreThanItsLast1024Places) {
  RequestQueue line;
  for (int i = 0; i < 1030; ++i) Add(&line, DueIn(1 + i, 1));
  EXPECT_EQ(line.DueAfter(Clock::time_point()).requests, 1024U);
}

TEST(RequestQueue, KeepsItsOrderThroughManyComingsAndGoings) {
  RequestQueue line;
  std::multimap<Clock::time_point, const Request*> expected;  // Equal keys in order of insertion.
  std::mt19937_64 random(11);
  for (int step = 0; step < 20000; ++step) {
    const uint64_t draw = random() % 10;
    if (draw < 5 || expected.empty()) {
      const Request* const added = Add(&line, DueIn(static_cast<int>(random() % 50), 0));
      expected.emplace(added->deadline, added);
    } else if (draw < 9) {
      const auto gone =
          std::next(expected.begin(), static_cast<ptrdiff_t>(random() % expected.size()));
      EXPECT_EQ(line.Take(*gone->second).get(), gone->second);
      expected.erase(gone);
    } else {
      EXPECT_EQ(line.TakeFirst().get(), expected.begin()->second);
      expected.erase(expected.begin());
    }
    ASSERT_EQ(line.empty(), expected.empty());
    if (expected.empty()) continue;
    ASSERT_EQ(&line.first(), expected.begin()->second);
  }
}

}  // namespace
}  // namespace embershard
