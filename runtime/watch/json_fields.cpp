#include "runtime/watch/json_fields.hpp"

namespace waggle {

using json = nlohmann::ordered_json;

std::optional<json> parse_document(std::string_view text, int nesting_max) {
  bool too_deep = false;
  auto document = json::parse(
    text,
    [&](int depth, json::parse_event_t, json&) {
      too_deep = too_deep || depth > nesting_max;
      return !too_deep;
    },
    false);
  if (too_deep || document.is_discarded())
    return std::nullopt;
  return document;
}

json field(const json& object, const char* name) {
  auto found = object.find(name);
  return found != object.end() ? *found : json(nullptr);
}

std::string text_in(const json& object, const char* field) {
  auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

std::optional<double> number_in(const json& object, const char* field) {
  auto found = object.find(field);
  return found != object.end() && found->is_number() ? std::optional{found->get<double>()}
                                                     : std::nullopt;
}

} // namespace waggle
