#include "package/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/text.h"
#include "package/names.h"
#include "package/refusal.h"

namespace embershard {
namespace {

using Json = nlohmann::json;

// Returning false from an event stops the parser.
class Builder final : public Json::json_sax_t {
 public:
  explicit Builder(std::string_view file) : file_(file) {}

  const Status& status() const { return status_; }
  Json TakeDocument() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Refuse("text", "binary data"); }

  bool number_float(number_float_t value, const string_t& digits) override {
    // The parser turns integers that do not fit into floats.
    if (digits.find_first_of(".eE") == string_t::npos) {
      return Refuse("integers of 64 bits", digits);
    }
    return Add(value);
  }

  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) {
      status_ = BadPackage(file_, ": json: duplicate key ", Shown("'" + name + "'"));
      return false;
    }
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    // The token may end within a character.
    return Refuse("JSON", "'" + PrintableAscii(token) + "' at byte " + std::to_string(position));
  }

 private:
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(Json value) {
    if (open_.size() == kJsonDepthMax) {
      return Refuse("at most " + std::to_string(kJsonDepthMax) + " levels", "deeper nesting");
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  // The returned pointer is valid while the element is open; its parent grows only after that.
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json* parent = open_.back();
    if (parent->is_array()) {
      parent->push_back(std::move(value));
      return &parent->back();
    }
    return &((*parent)[key_] = std::move(value));
  }

  bool Refuse(std::string_view expected, std::string_view got) {
    status_ = Refusal(file_, "json", expected, got);
    return false;
  }

  const std::string file_;
  Json root_;
  std::vector<Json*> open_;  // Outermost first.
  std::string key_;          // Key of the next value.
  Status status_;
};

// Same text as Python's repr(): the fewest digits that parse to `value`, with an exponent only
// below 1e-4 and from 1e16 on.
std::string CanonicalNumber(double value) {
  std::array<char, 40> text;
  const auto digits = [&text, value](std::chars_format format) {
    const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format).ptr;
    return std::string(text.data(), end);
  };
  const std::string scientific = digits(std::chars_format::scientific);  // "-d.ddde-xx"
  const int exponent = std::atoi(scientific.c_str() + scientific.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string number = digits(std::chars_format::fixed);
  return number.find('.') == std::string::npos ? number + ".0" : number;
}

void Append(const Json& value, std::string* out) {
  if (value.is_object()) {
    char before = '{';
    for (const auto& [key, member] : value.items()) {  // A std::map, so sorted by bytes.
      *out += before;
      *out += Json(key).dump() + ":";
      Append(member, out);
      before = ',';
    }
    *out += value.empty() ? "{}" : "}";
  } else if (value.is_array()) {
    char before = '[';
    for (const Json& element : value) {
      *out += before;
      Append(element, out);
      before = ',';
    }
    *out += value.empty() ? "[]" : "]";
  } else if (value.is_number_float()) {
    *out += CanonicalNumber(value.get<double>());
  } else {
    *out += value.dump();
  }
}

using Json = nlohmann::json;

const Json kNull;

}  // namespace

Status ParseJson(std::string_view text, std::string_view file, Json* document) {
  if (text.size() > kJsonBytesMax) {
    return Refusal(file, "json", "at most " + std::to_string(kJsonBytesMax) + " bytes",
                   std::to_string(text.size()));
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return Unexpected(file, "json", "byte order mark");
  }
  // The parser would end the text at a zero byte.
  if (const size_t at = text.find('\0'); at != std::string_view::npos) {
    return Refusal(file, "json", "JSON", "a zero byte at byte " + std::to_string(at));
  }
  Builder builder(file);
  if (!Json::sax_parse(text, &builder)) return builder.status();
  *document = builder.TakeDocument();
  return {};
}

std::string CanonicalJson(const Json& document) {
  std::string text;
  Append(document, &text);
  return text;
}

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
  const Json* member = &kNull;
  if (json_->is_object()) {
    const auto at = json_->find(key);
    if (at != json_->end()) member = &*at;
  }
  return {member, PathOf(key), refusal_};
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
  for (const Json& element : *json_) {
    elements.push_back({&element, PathOf(std::to_string(elements.size())), refusal_});
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
  // Text without quotes, if it can be part of a message.
  const bool plain = json_->is_string() && IsInputName(json_->get_ref<const std::string&>());
  Refuse(expected, plain ? json_->get<std::string>() : json_->dump());
}

void JsonValue::Refuse(std::string_view expected, std::string_view got) const {
  refusal_->Refuse(path_, expected, got);
}

}  // namespace embershard
