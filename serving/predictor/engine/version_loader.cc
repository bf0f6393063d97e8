#include "engine/version_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace embershard {
namespace {

// How often a wait looks whether the loader is to stop.
constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

std::string VersionText(const std::string& model, int64_t version) {
  return "model '" + model + "' version " + std::to_string(version);
}

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

void VersionLoader::LetGo(const LoadedVersion& loaded) {
  memory_.SetHolder(loaded.memory, MemoryBudget::Holder::kDraining);
}

void VersionLoader::Stop() {
  stopping_ = true;
  runner_.Stop();
}

Result<LoadedVersion> VersionLoader::Load(const std::string& model, int64_t version, bool gently) {
  const LoadTask task = {.name = VersionText(model, version),
                         .in_background = gently,
                         .bytes_per_second = options_->load_bytes_per_second};
  const Result<MemoryParts> parts = runner_.Run<MemoryParts>(
      task, [source = source_, model, version](const LoadContext& context) -> Result<MemoryParts> {
        MemoryParts found;
        RETURN_IF_ERROR(RunIn(context.background, [&]() -> Status {
          ASSIGN_OR_RETURN(found, source->Memory(model, version));
          return {};
        }));
        return found;
      });
  if (!parts.ok()) return parts.status();
  ASSIGN_OR_RETURN(const MemoryBudget::Claim claim, ClaimMemory(*parts));
  using Started = Result<std::unique_ptr<Engine>>;
  Started engine = runner_.Run<std::unique_ptr<Engine>>(
      task,
      [source = source_, model, version, options = options_->engine,
       claim = claim](const LoadContext& context) -> Started {
        ASSIGN_OR_RETURN(std::unique_ptr<Model> opened, source->Load(model, version, context));
        return Engine::Start(std::move(opened), options, context);
      });
  if (engine.ok()) return LoadedVersion{served_->Own(std::move(*engine), claim), claim};
  memory_.SetHolder(claim, MemoryBudget::Holder::kGivenUp);  // Until its thread releases it.
  return engine.status();
}

Result<MemoryBudget::Claim> VersionLoader::ClaimMemory(const MemoryParts& parts) {
  const Clock::time_point deadline = Clock::now() + options_->drain_wait;
  Result<MemoryBudget::Claim> claim = memory_.Take(parts);
  while (!claim.ok() && memory_.is_draining() && !stopping_ && Clock::now() < deadline) {
    // While a load waits, engines that end free their memory at full speed.
    (void)served_->WaitForEnds(0, std::min(deadline, Clock::now() + kLookEvery));
    claim = memory_.Take(parts);
  }
  return claim;
}

}  // namespace embershard
