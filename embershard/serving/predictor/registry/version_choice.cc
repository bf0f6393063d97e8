#include "registry/version_choice.h"

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace embershard {
namespace {

// Only the number, the first and the last of many versions. `versions` is ascending.
std::string NumbersText(const std::vector<int64_t>& versions) {
  constexpr size_t kListedMax = 10;
  if (versions.size() > kListedMax) {
    return StrCat(versions.size(), " versions from ", versions.front(), " to ", versions.back());
  }
  std::string text;
  for (const int64_t version : versions) {
    text += (text.empty() ? "" : ", ") + std::to_string(version);
  }
  return text.empty() ? "none" : text;
}

Status NotThere(const std::string& model, const std::string& what,
                const std::vector<int64_t>& there) {
  return NotFound("model '", model, "': ", what, " is not in the repository, expected one of ",
                  NumbersText(there));
}

bool Has(const std::vector<int64_t>& there, int64_t version) {
  return std::ranges::find(there, version) != there.end();
}

// The highest version that is neither canary nor shadow; 0 if there is none.
int64_t HighestUnreserved(const std::vector<int64_t>& there, const Labels& labels) {
  int64_t highest = 0;
  for (const int64_t version : there) {
    const bool reserved = std::ranges::any_of(
        labels, [version](const auto& label) { return label.second == version; });
    if (!reserved) highest = std::max(highest, version);
  }
  return highest;
}

}  // namespace

std::string VersionText(const std::string& model, int64_t version) {
  return "model '" + model + "' version " + std::to_string(version);
}

Result<VersionRule> ParseVersionRule(std::string_view text) {
  if (text.empty()) return VersionRule();
  if (text == "latest") return VersionRule{.label = "", .stable_first = false};
  if (IsLabel(text)) return VersionRule{.label = std::string(text)};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number > 0) {
    return VersionRule{.number = number, .label = ""};
  }
  return InvalidArgument(
      "version: expected latest, a number from 1, or a label (canary, shadow, stable), got '", text,
      "'");
}

Result<VersionChoice> ChooseVersions(const std::string& model, const VersionRule& rule,
                                     const std::vector<int64_t>& there, const Labels& labels,
                                     const std::set<int64_t>& also) {
  if (there.empty()) return NotFound("model '", model, "' is not in the repository");
  VersionChoice choice;
  for (const auto& [label, version] : labels) {
    if (!Has(there, version)) {
      return NotThere(model, "version " + std::to_string(version) + ", labelled " + label + ",",
                      there);
    }
    choice.labels.emplace(label, version);
    choice.versions.insert(version);
  }
  const auto stable = labels.find(kStableLabel);
  if (rule.number > 0) {
    if (!Has(there, rule.number)) {
      return NotThere(model, "version " + std::to_string(rule.number), there);
    }
    choice.default_version = rule.number;
  } else if (!rule.label.empty()) {
    const auto labelled = labels.find(rule.label);
    if (labelled == labels.end()) {
      return NotFound("model '", model, "': no version is labelled ", rule.label);
    }
    choice.default_version = labelled->second;
  } else if (!rule.stable_first) {
    choice.default_version = std::ranges::max(there);
  } else if (stable != labels.end()) {
    choice.default_version = stable->second;
  } else {
    choice.default_version = HighestUnreserved(there, labels);
    if (choice.default_version == 0) {
      return NotFound("model '", model,
                      "': every version is labelled canary or shadow: label one stable, or name "
                      "the default with --version");
    }
  }
  choice.versions.insert(choice.default_version);
  for (const int64_t version : also) {
    if (Has(there, version)) choice.versions.insert(version);
  }
  return choice;
}

}  // namespace embershard
