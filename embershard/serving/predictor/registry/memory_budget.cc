#include "registry/memory_budget.h"

#include <algorithm>
#include <string>
#include <utility>

namespace embershard {

Result<MemoryBudget::Claim> MemoryBudget::Take(MemoryParts parts) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.claim.expired(); });
  MemoryParts taken;
  const uint64_t served = AddParts(Holder::kServed, &taken);
  const uint64_t draining = AddParts(Holder::kDraining, &taken);
  const uint64_t given_up = AddParts(Holder::kGivenUp, &taken);
  const uint64_t before = served + draining + given_up;
  uint64_t more = 0;
  for (const auto& [digest, bytes] : parts) more += taken.contains(digest) ? 0 : bytes;
  if (bytes_max_ == 0 || before + more <= bytes_max_) {
    auto claim = std::make_shared<const MemoryParts>(std::move(parts));
    entries_.push_back({.claim = claim});
    return claim;
  }
  std::string of_these;
  if (draining > 0) of_these = std::to_string(draining) + " by versions that still drain";
  if (given_up > 0) {
    of_these += (of_these.empty() ? "" : ", ") + std::to_string(given_up) +
                " by loads that were given up and have not ended";
  }
  return Status(StatusCode::kResourceExhausted,
                "memory: expected at most " + std::to_string(bytes_max_) +
                    " bytes (the memory budget), got " + std::to_string(before) +
                    " that are taken" + (of_these.empty() ? "" : " (" + of_these + ")") + " and " +
                    std::to_string(more) + " more");
}

void MemoryBudget::SetHolder(const Claim& claim, Holder holder) {
  for (Entry& entry : entries_) {
    if (entry.claim.lock() == claim) entry.holder = holder;
  }
}

bool MemoryBudget::is_draining() const {
  return std::ranges::any_of(entries_, [](const Entry& entry) {
    return entry.holder == Holder::kDraining && !entry.claim.expired();
  });
}

uint64_t MemoryBudget::AddParts(Holder holder, MemoryParts* taken) const {
  uint64_t added = 0;
  for (const Entry& entry : entries_) {
    const Claim claim = entry.holder == holder ? entry.claim.lock() : nullptr;
    if (claim == nullptr) continue;
    for (const auto& [digest, bytes] : *claim) {
      if (taken->emplace(digest, bytes).second) added += bytes;
    }
  }
  return added;
}

}  // namespace embershard
