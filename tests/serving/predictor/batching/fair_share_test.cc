#include "batching/fair_share.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "batching/start.h"

namespace embershard {
namespace {

using std::chrono::milliseconds;

// Which of the models with work runs next, one batch at a time.
FairShare::Model* Next(const FairShare& shares, const std::vector<FairShare::Model*>& ready) {
  FairShare::Model* next = nullptr;
  for (FairShare::Model* const model : ready) {
    if (next == nullptr || shares.IsBefore(*model, *next)) next = model;
  }
  return next;
}

TEST(FairShare, DividesTheTimeByWeightWhateverTheBatchesCost) {
  FairShare shares;
  FairShare::Model* const small = shares.Add("small", 1);
  FairShare::Model* const large = shares.Add("large", 3);
  std::map<FairShare::Model*, milliseconds> ran;
  for (int i = 0; i < 4000; ++i) {
    FairShare::Model* const next = Next(shares, {small, large});
    const milliseconds took(next == small ? 1 : 7);
    shares.Begin(next, milliseconds(2), kStart);  // The forecast of 2 ms is wrong for both models.
    shares.End(next, milliseconds(2), took);
    ran[next] += took;
  }
  EXPECT_NEAR(static_cast<double>(ran[large].count()) / static_cast<double>(ran[small].count()), 3,
              0.05);
}

TEST(FairShare, AModelThatWasIdleHasSavedNothingUp) {
  FairShare shares;
  FairShare::Model* const busy = shares.Add("busy", 1);
  FairShare::Model* const idle = shares.Add("idle", 1);
  for (int i = 0; i < 100; ++i) {
    shares.Begin(busy, milliseconds(1), kStart);
    shares.End(busy, milliseconds(1), milliseconds(1));
  }
  int runs_of_idle = 0;
  for (int i = 0; i < 10; ++i) {
    FairShare::Model* const next = Next(shares, {busy, idle});
    runs_of_idle += next == idle ? 1 : 0;
    shares.Begin(next, milliseconds(1), kStart);
    shares.End(next, milliseconds(1), milliseconds(1));
  }
  EXPECT_EQ(runs_of_idle, 5);
}

TEST(FairShare, TheShareIsAmongModelsThatWereActiveOfLate) {
  FairShare shares;
  FairShare::Model* const one = shares.Add("one", 1);
  FairShare::Model* const other = shares.Add("other", 3);
  EXPECT_EQ(shares.ShareOf(*one, kStart), 1);
  shares.Begin(other, milliseconds(1), kStart);
  EXPECT_EQ(shares.ShareOf(*one, kStart + milliseconds(99)), 0.25);
  EXPECT_EQ(shares.ShareOf(*other, kStart + milliseconds(99)), 1);
  EXPECT_EQ(shares.ShareOf(*one, kStart + milliseconds(100)), 1);
}

TEST(FairShare, VersionsOfAModelShareItsTime) {
  FairShare shares;
  FairShare::Model* const first = shares.Add("model", 2);
  EXPECT_EQ(shares.Add("model", 5), first);
  EXPECT_EQ(first->weight, 2);
  shares.Remove("model");
  EXPECT_EQ(shares.Add("model", 5), first);
}

}  // namespace
}  // namespace embershard
