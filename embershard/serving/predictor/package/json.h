// Parses JSON that all readers understand in the same way, and names the field that is wrong.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace embershard {

inline constexpr size_t kJsonBytesMax = size_t{64} << 20;
inline constexpr size_t kJsonDepthMax = 32;

// Fails, with field `json`, for text that is larger than kJsonBytesMax, nested deeper than
// kJsonDepthMax, not UTF-8, or not valid JSON. Also fails for a byte order mark, a duplicate key in
// an object, NaN, infinity, or an integer of more than 64 bits.
Status ParseJson(std::string_view text, std::string_view file, nlohmann::json* document);

// Writes the canonical text that digests are computed from: sorted keys, no spaces, UTF-8, and
// numbers in the format of Python's json module.
std::string CanonicalJson(const nlohmann::json& document);

// The first error in a file. Reading continues after it with empty values, so that readers need not
// branch after each field.
class FirstRefusal {
 public:
  explicit FirstRefusal(std::string_view file) : file_(file) {}

  void Refuse(std::string_view field, std::string_view expected, std::string_view got);
  // The message is "<file>: <field>: <problem>".
  void RefuseAs(std::string_view field, std::string_view problem);
  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  const std::string file_;
  Status status_;
};

// One value of a document with its path, such as "inputs.3.ids.rows". The document and the refusal
// must outlive it. Cheap to copy.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& document, FirstRefusal* refusal);

  const std::string& path() const { return path_; }
  const nlohmann::json& json() const { return *json_; }
  bool is_null() const;

  bool ExpectObject() const;  // Refuses any other value, and returns false.

  // Refuses any value but an object with exactly these keys.
  void ExpectKeys(std::initializer_list<std::string_view> keys) const;

  bool Has(std::string_view key) const;

  // Null if the object has no such member.
  JsonValue operator[](std::string_view key) const;

  // Each of these refuses a value of another kind, and returns an empty one.
  std::vector<JsonValue> Elements(size_t size_min = 0) const;
  std::vector<std::pair<std::string, JsonValue>> Members() const;
  std::string Text() const;
  bool Boolean() const;
  double Number() const;  // Finite.
  uint64_t Unsigned(uint64_t min, uint64_t max) const;
  int64_t Integer(int64_t min, int64_t max) const;

  // Text for which `accepts` returns true; `expected` describes it.
  std::string TextThat(bool (*accepts)(std::string_view), std::string_view expected) const;

  // Refuses a text that is none of the words.
  template <class T>
  T Choice(std::initializer_list<std::pair<std::string_view, T>> choices) const {
    const std::string text = Text();
    std::string known;
    for (const auto& [word, value] : choices) {
      if (word == text) return value;
      known.append(known.empty() ? "" : " or ").append(word);
    }
    Refuse(known);
    return choices.begin()->second;
  }

  void Refuse(std::string_view expected) const;  // The message says "got" and the value.
  void Refuse(std::string_view expected, std::string_view got) const;
  void RefuseUnexpected() const { refusal_->RefuseAs(path_, "unexpected key"); }

 private:
  JsonValue(const nlohmann::json* json, std::string path, FirstRefusal* refusal)
      : json_(json), path_(std::move(path)), refusal_(refusal) {}
  std::string PathOf(std::string_view key) const;

  const nlohmann::json* json_;
  std::string path_;
  FirstRefusal* refusal_;
};

}  // namespace embershard
