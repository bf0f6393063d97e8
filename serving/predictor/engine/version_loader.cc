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
        const Status read = RunIn(context.background, [&] {
          Result<MemoryParts> memory = source->Memory(model, version);
          if (memory.ok()) found = std::move(*memory);
          return memory.status();
        });
        if (!read.ok()) return read;
        return found;
      });
  if (!parts.ok()) return parts.status();
  const Result<MemoryBudget::Claim> claim = ClaimMemory(*parts);
  if (!claim.ok()) return claim.status();
  using Started = Result<std::unique_ptr<Engine>>;
  Started engine = runner_.Run<std::unique_ptr<Engine>>(
      task,
      [source = source_, model, version, options = options_->engine,
       claim = *claim](const LoadContext& context) -> Started {
        Result<std::unique_ptr<Model>> opened = source->Load(model, version, context);
        if (!opened.ok()) return opened.status();
        return Engine::Start(std::move(*opened), options, context);
      });
  if (engine.ok()) return LoadedVersion{served_->Own(std::move(*engine), *claim), *claim};
  memory_.SetHolder(*claim, MemoryBudget::Holder::kGivenUp);  // Until its thread releases it.
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
