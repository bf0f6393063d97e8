#include <array>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "package/json_parse.h"

namespace embershard {
namespace {

using Json = nlohmann::json;

// As Python's repr(): the fewest digits that read back as `value`, an exponent only
// below 1e-4 and from 1e16 on.
std::string CanonicalNumber(double value) {
  std::array<char, 40> text;
  // "-d.ddde-xx", or "-de-xx": the digits, and where the point stands.
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific)
          .ptr;
  const std::string scientific(text.data(), end);
  const size_t mark = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + mark + 1);
  if (exponent < -4 || exponent >= 16) return scientific;

  const bool negative = scientific[0] == '-';
  std::string digits;
  for (size_t i = negative; i < mark; ++i) {
    if (scientific[i] != '.') digits += scientific[i];
  }
  std::string number = negative ? "-" : "";
  if (exponent < 0) return number + "0." + std::string(-exponent - 1, '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole)
    return number + digits + std::string(whole - digits.size(), '0') + ".0";
  return number + digits.substr(0, whole) + "." + digits.substr(whole);
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

std::string CanonicalJson(const Json& document) {
  std::string text;
  Append(document, &text);
  return text;
}

}  // namespace embershard
