// A repository of fake models, whose versions are broken, large or slow as a test says.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "batching/fake_model.h"
#include "registry/model_source.h"

namespace embershard {

// The public fields may change only while no load runs, including loads that were given up.
class FakeSource final : public ModelSource {
 public:
  std::map<std::string, std::vector<int64_t>> there = {{"ranker", {1}}};
  std::set<std::string> unreadable;        // Models whose folder cannot be read.
  std::map<int64_t, std::string> digests;  // By version; empty if missing.
  std::map<std::string, Labels> labels;
  bool labels_are_broken = false;
  bool is_gone = false;  // The repository cannot be read.
  std::set<int64_t> broken;
  std::map<int64_t, MemoryParts> memory;
  std::function<void(int64_t version, const LoadContext& context)> before_load =
      [](int64_t, const LoadContext&) {};
  std::function<void()> before_list = [] {};
  std::function<void(FakeModel* model)> made = [](FakeModel*) {};

  Result<RepositoryModels> List() const override {
    before_list();
    if (is_gone) return NotFound("repository: expected a folder, found none");
    RepositoryModels models;
    for (const auto& [model, versions] : there) models.emplace(model, versions);
    for (const std::string& model : unreadable) {
      models.insert_or_assign(model, BadPackage("model '", model, "': cannot be read"));
    }
    return models;
  }
  Result<std::string> Digest(const std::string& model, int64_t version) const override {
    const auto listed = there.find(model);
    if (listed == there.end() || std::ranges::count(listed->second, version) == 0) {
      return NotFound("manifest.sha256: missing file");
    }
    const auto entry = digests.find(version);
    return entry != digests.end() ? entry->second : std::string();
  }
  Result<Labels> ReadLabels(const std::string& model) const override {
    if (labels_are_broken) return BadPackage("labels.json: expected a number, got text");
    const auto entry = labels.find(model);
    return entry != labels.end() ? entry->second : Labels();
  }
  Result<VersionOutline> ReadOutline(const std::string&, int64_t version) const override {
    const auto parts = memory.find(version);
    const auto digest = digests.find(version);
    return VersionOutline{.memory = parts != memory.end() ? parts->second : MemoryParts(),
                          .digest = digest != digests.end() ? digest->second : std::string()};
  }
  Result<std::unique_ptr<Model>> Load(const std::string& model, int64_t version,
                                      const VersionOutline&, const LoadContext& context) override {
    before_load(version, context);
    {
      const std::lock_guard lock(mutex_);
      loaded_.push_back(version);
      in_background_.push_back(context.background != nullptr);
    }
    if (broken.contains(version)) return BadPackage("manifest.json: sha256: expected a, got b");
    Manifest manifest = FakeManifest();
    manifest.model = model;
    manifest.version = version;
    auto loading = std::make_unique<FakeModel>(std::move(manifest));
    made(loading.get());
    return std::unique_ptr<Model>(std::move(loading));
  }

  // Versions in the order of their loads. Any thread.
  std::vector<int64_t> loaded() const {
    const std::lock_guard lock(mutex_);
    return loaded_;
  }
  // Which of these were loaded in the background. Any thread.
  std::vector<bool> in_background() const {
    const std::lock_guard lock(mutex_);
    return in_background_;
  }

 private:
  mutable std::mutex mutex_;  // A load that was given up may end while another runs.
  std::vector<int64_t> loaded_;
  std::vector<bool> in_background_;
};

}  // namespace embershard
