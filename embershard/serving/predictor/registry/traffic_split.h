#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace embershard {

struct TrafficOptions {
  std::string label = {};  // Empty: no split.
  double share = 0;        // Share of the requests without version and label, 0 .. 1.
};

// Thread-safe.
class TrafficSplit {
 public:
  explicit TrafficSplit(TrafficOptions options) : options_(std::move(options)) {}

  const std::string& label() const { return options_.label; }

  // True if a request goes to the labelled version. The result for a model and key is the same in
  // every process, and a larger share includes the keys of a smaller one. Empty key: random.
  bool Takes(std::string_view model, std::string_view key) const;

 private:
  static uint64_t RandomSeed();

  const TrafficOptions options_;
  const uint64_t seed_ = RandomSeed();
  mutable std::atomic<uint64_t> drawn_ = 0;  // Random numbers drawn so far.
};

}  // namespace embershard
