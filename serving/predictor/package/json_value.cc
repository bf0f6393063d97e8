#include "package/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "package/names.h"
#include "package/refusal.h"

namespace embershard {
namespace {

using Json = nlohmann::json;

const Json kNull;

}  // namespace

void FirstRefusal::Refuse(std::string_view field, std::string_view expected, std::string_view got) {
  if (ok()) status_ = Refusal(file_, field.empty() ? "json" : field, expected, got);
}

void FirstRefusal::RefuseAs(std::string_view field, std::string_view problem) {
  if (ok()) status_ = BadPackage(file_, ": ", field, ": ", problem);
}

JsonValue::JsonValue(const Json& document, FirstRefusal* refusal)
    : JsonValue(&document, "", refusal) {}

std::string JsonValue::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

bool JsonValue::is_null() const { return json_->is_null(); }

bool JsonValue::ExpectObject() const {
  if (json_->is_object()) return true;
  Refuse("an object");
  return false;
}

void JsonValue::ExpectKeys(std::initializer_list<std::string_view> keys) const {
  if (!ExpectObject()) return;
  for (const std::string_view key : keys) {
    if (!json_->contains(key)) refusal_->RefuseAs(PathOf(key), "missing key");
  }
  for (const auto& [key, value] : json_->items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      refusal_->RefuseAs(PathOf(key), "unexpected key");
    }
  }
}

bool JsonValue::Has(std::string_view key) const {
  return json_->is_object() && json_->contains(key);
}

JsonValue JsonValue::operator[](std::string_view key) const {
  const Json* found = &kNull;
  if (json_->is_object()) {
    const auto at = json_->find(key);
    if (at != json_->end()) found = &*at;
  }
  return {found, PathOf(key), refusal_};
}

std::vector<JsonValue> JsonValue::Elements(size_t size_min) const {
  std::vector<JsonValue> elements;
  if (!json_->is_array()) {
    Refuse("an array");
    return elements;
  }
  if (json_->size() < size_min) {
    Refuse("at least " + std::to_string(size_min) + " of them", std::to_string(json_->size()));
  }
  elements.reserve(json_->size());
  for (const Json& each : *json_) {
    elements.push_back({&each, PathOf(std::to_string(elements.size())), refusal_});
  }
  return elements;
}

std::vector<std::pair<std::string, JsonValue>> JsonValue::Members() const {
  std::vector<std::pair<std::string, JsonValue>> members;
  if (!ExpectObject()) return members;
  members.reserve(json_->size());
  for (const auto& [key, value] : json_->items()) {
    members.emplace_back(key, JsonValue(&value, PathOf(key), refusal_));
  }
  return members;
}

std::string JsonValue::Text() const {
  if (json_->is_string()) return json_->get<std::string>();
  Refuse("text");
  return {};
}

bool JsonValue::Boolean() const {
  if (json_->is_boolean()) return json_->get<bool>();
  Refuse("true or false");
  return false;
}

double JsonValue::Number() const {
  if (json_->is_number()) return json_->get<double>();
  Refuse("a number");
  return 0;
}

uint64_t JsonValue::Unsigned(uint64_t min, uint64_t max) const {
  if (!json_->is_number_integer()) {
    Refuse("an integer");
    return min;
  }
  const bool negative = !json_->is_number_unsigned() && json_->get<int64_t>() < 0;
  const uint64_t value = negative ? 0 : json_->get<uint64_t>();
  if (!negative && value >= min && value <= max) return value;
  Refuse(std::to_string(min) + " .. " + std::to_string(max));
  return min;
}

int64_t JsonValue::Integer(int64_t min, int64_t max) const {
  return static_cast<int64_t>(Unsigned(static_cast<uint64_t>(min), static_cast<uint64_t>(max)));
}

std::string JsonValue::TextThat(bool (*accepts)(std::string_view),
                                std::string_view expected) const {
  std::string text = Text();
  if (!accepts(text)) Refuse(expected);
  return text;
}

void JsonValue::Refuse(std::string_view expected) const {
  // Text as it is, where it can stand in a message.
  const bool plain = json_->is_string() && IsInputName(json_->get_ref<const std::string&>());
  Refuse(expected, plain ? json_->get<std::string>() : json_->dump());
}

void JsonValue::Refuse(std::string_view expected, std::string_view got) const {
  refusal_->Refuse(path_, expected, got);
}

}  // namespace embershard
