// Chooses the versions of a model to serve, from those in the repository.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/labels.h"

namespace embershard {

struct VersionRule {
  int64_t number = 0;  // This version, unless 0.
  std::string label;   // Otherwise the version with this label, unless empty.
  // Otherwise the version labelled stable; without that label the highest version that is neither
  // canary nor shadow. False: the highest version of all.
  bool stable_first = true;
};

// For example "model 'ranker' version 3".
std::string VersionText(const std::string& model, int64_t version);

// Parses "" (stable_first), "latest" (the highest of all), a number, or a label. kInvalidArgument
// for anything else.
Result<VersionRule> ParseVersionRule(std::string_view text);

struct VersionChoice {
  int64_t default_version = 0;
  Labels labels;
  std::set<int64_t> versions;  // Versions to load: the default, labelled ones, and those of `also`.
};

// `there`: the versions in the repository. `also`: further versions to load; missing ones are
// ignored. kNotFound if the rule or a label names a missing version, or if the rule is stable_first
// and all versions are canary or shadow.
Result<VersionChoice> ChooseVersions(const std::string& model, const VersionRule& rule,
                                     const std::vector<int64_t>& there, const Labels& labels,
                                     const std::set<int64_t>& also);

}  // namespace embershard
