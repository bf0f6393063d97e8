// Requests for the fake model with many examples, whose scores can be worked out one by one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "batching/fake_model.h"

namespace embershard {

// Allows requests of any size.
inline Manifest LargeManifest() {
  Manifest manifest = FakeManifest();
  manifest.limits = {.max_examples = 1000000, .max_ids = 1000000};
  return manifest;
}

// Example i has price i, item i, i % 3 genres 4 of weight 0.5, and i % 2 tags 5. The request has 3
// ids of its own, of which history 100 is unknown. With `unknown_genres` each genre is unknown. Ids
// in all: 3 + examples * (1 item, i % 3 genres, i % 2 tags).
inline FakeInputs LargeInputs(uint32_t examples, bool unknown_genres = false) {
  FakeInputs inputs = {.num_examples = examples,
                       .dense = {{30}, {}, {}},
                       .sparse = {{{1}, {7}, {}}, {}, {{2}, {3, 100}, {}}, {}, {}},
                       .outputs_wanted = {0, 1}};
  for (uint32_t i = 0; i < examples; ++i) {
    inputs.dense[1].push_back(static_cast<float>(i));
    inputs.sparse[1].lengths.push_back(1);
    inputs.sparse[1].values.push_back(i % 2000);
    inputs.sparse[3].lengths.push_back(static_cast<int32_t>(i % 3));
    for (uint32_t genre = 0; genre < i % 3; ++genre) {
      inputs.sparse[3].values.push_back(unknown_genres ? 1000 : 4);
      inputs.sparse[3].weights.push_back(0.5);
    }
    inputs.sparse[4].lengths.push_back(static_cast<int32_t>(i % 2));
    if (i % 2 == 1) inputs.sparse[4].values.push_back(5);
  }
  return inputs;
}

// Scores of LargeInputs(). Example i scores age 30 + user 7 + history 3 + price i + discount 0.25 +
// item i + genres 2 each + tags 5 each. All numbers are small, so the sums are exact.
inline std::vector<float> LargeScores(uint32_t examples) {
  std::vector<float> scores;
  for (uint32_t i = 0; i < examples; ++i) {
    const uint32_t whole = 30 + 7 + 3 + i + i % 2000 + 2 * (i % 3) + 5 * (i % 2);
    scores.push_back(static_cast<float>(whole) + 0.25F);
  }
  return scores;
}

// Age 30, and the ids user 7, history 3 and history 100.
inline const std::vector<float> kLargeProfile = {30, 3};

}  // namespace embershard
