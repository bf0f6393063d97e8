// Which versions of a model are to be served: a rule over what lies in the repository.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "package/labels.h"

namespace embershard {

// Which version is the default.
struct VersionRule {
  int64_t number = 0;  // That one, unless 0.
  std::string label;   // The one labelled so, unless empty.
  // Else the one labelled stable or, if the model has no such label, the highest that is neither
  // canary nor shadow. False: the highest of all.
  bool stable_first = true;
};

// For example "model 'ranker' version 3".
std::string VersionText(const std::string& model, int64_t version);

// "": stable_first. "latest": the highest of all. "12": that one. Else a label. kInvalidArgument:
// none of these.
Result<VersionRule> ParseVersionRule(std::string_view text);

struct VersionChoice {
  int64_t default_version = 0;
  Labels labels;
  std::set<int64_t> versions;  // All that are to be loaded: the default, the labelled ones, `also`.
};

// `there`: the versions in the repository. `also`: further ones, which somebody asked for; those
// that are not there are left out. kNotFound where the rule or a label means none that is there,
// and where the rule is stable_first and every version is a canary or shadow.
Result<VersionChoice> ChooseVersions(const std::string& model, const VersionRule& rule,
                                     const std::vector<int64_t>& there, const Labels& labels,
                                     const std::set<int64_t>& also);

}  // namespace embershard
