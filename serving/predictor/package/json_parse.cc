#include "package/json_parse.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/text.h"
#include "package/refusal.h"

namespace embershard {
namespace {

using Json = nlohmann::json;

// Builds a document from the parser's events. Returning false stops the parser.
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
    // The last token may be half a character.
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

  // Where an element lies stays true while it is open: its parent grows only after
  // it has been closed.
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
  std::string key_;          // Of the value to come.
  Status status_;
};

// As Python's repr(): the fewest digits that read back as `value`, an exponent only
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
    for (const auto& [key, each] : value.items()) {  // A std::map: sorted by bytes.
      *out += before;
      *out += Json(key).dump() + ":";
      Append(each, out);
      before = ',';
    }
    *out += value.empty() ? "{}" : "}";
  } else if (value.is_array()) {
    char before = '[';
    for (const Json& each : value) {
      *out += before;
      Append(each, out);
      before = ',';
    }
    *out += value.empty() ? "[]" : "]";
  } else if (value.is_number_float()) {
    *out += CanonicalNumber(value.get<double>());
  } else {
    *out += value.dump();
  }
}

}  // namespace

Status ParseJson(std::string_view text, std::string_view file, Json* document) {
  if (text.size() > kJsonBytesMax) {
    return Refusal(file, "json", "at most " + std::to_string(kJsonBytesMax) + " bytes",
                   std::to_string(text.size()));
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    return Unexpected(file, "json", "byte order mark");
  }
  // The parser would take it for the end of the text.
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

}  // namespace embershard
