#include "runtime/cli/status_text.hpp"

#include <algorithm>

#include "runtime/cli/readable.hpp"
#include "runtime/cli/swarm_findings.hpp"
#include "runtime/cli/text_table.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t text_max = 120;      // of a text, and of a line of several values
constexpr std::size_t notice_max = 600;    // of the notice, whose end says what would help
constexpr std::size_t label_width = 22;    // "target batch size" and room for longer ones
constexpr std::size_t items_max = 16;      // of an object or a list
constexpr std::size_t depth_max = 3;       // objects in objects
constexpr std::size_t fields_max = 100;    // of the document
constexpr std::size_t peers_max = 200;     // in the table
constexpr std::size_t short_id_length = 8; // tells the peers of a run apart
constexpr std::size_t id_length = 64;      // a SHA-256 in hexadecimal

bool is_id(const std::string& text) {
  return text.size() == id_length
         && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string text_of(const std::string& text, std::size_t length_max) {
  if (text.empty())
    return "-";
  return is_id(text) ? text.substr(0, short_id_length) : printable(text, length_max);
}

/// How a number is shown, by the end of its field's name, which says its unit.
struct quantity {
  std::string_view ending;
  std::string (*text)(double);
};
constexpr quantity quantities[]{
  {"samples_per_second", [](double x) { return readable_number(x) + " samples/s"; }},
  {"bandwidth", [](double x) { return readable_bytes(x) + "/s"; }},
  {"bytes_per_second", [](double x) { return readable_bytes(x) + "/s"; }},
  {"bytes", readable_bytes},
  {"seconds", readable_duration},
  {"memory", readable_share},
  {"disk", readable_share},
  {"gpu", readable_share},
  {"loss", readable_loss}};

/// Null: it has no unit.
const quantity* quantity_of(std::string_view name) {
  auto known = std::ranges::find_if(
    quantities, [&](const quantity& one) { return name.ends_with(one.ending); });
  return known != std::end(quantities) ? known : nullptr;
}

std::string number_of(const json& value, const std::string& name) {
  if (const auto* what = quantity_of(name))
    return what->text(value.get<double>());
  return value.is_number_unsigned() ? readable_count(value.get<std::uint64_t>())
                                    : readable_number(value.get<double>());
}

/// "samples_toward_epoch" → "samples toward epoch"
std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return printable(name, text_max / 2);
}

/// `name` is that of the field, or of the object around it: {"bytes":{"in":1}} counts bytes.
std::string value_of(const json& value, const std::string& name, std::size_t depth = 0) {
  if (value.is_null())
    return "-";
  if (value.is_boolean())
    return value.get<bool>() ? "yes" : "no";
  if (value.is_number())
    return number_of(value, name);
  if (value.is_string())
    return text_of(value.get_ref<const std::string&>(), name == "notice" ? notice_max : text_max);
  if (value.empty())
    return "none";
  if (depth == depth_max)
    return "...";
  std::string all;
  std::size_t shown = 0;
  for (const auto& [key, item] : value.items()) {
    if (!all.empty())
      all += ", ";
    if (++shown > items_max) {
      all += "and " + readable_count(value.size() - items_max) + " more";
      break;
    }
    if (value.is_object())
      all += spaced(key) + " ";
    bool own_unit = value.is_object() && quantity_of(key) != nullptr;
    all += value_of(item, own_unit ? key : name, depth + 1);
  }
  return all.size() > 2 * text_max ? printable(all, 2 * text_max) : all;
}

std::string label_of(const std::string& name) {
  // The value shows the unit.
  if (name.ends_with("samples_per_second"))
    return spaced(name.substr(0, name.size() - std::string_view{"samples_per_second"}.size())
                  + "speed");
  constexpr std::string_view seconds = "_seconds";
  return spaced(name.ends_with(seconds) ? name.substr(0, name.size() - seconds.size()) : name);
}

std::string cell(const json& value, std::size_t length_max) {
  return printable(value_of(value, {}), length_max);
}

std::string peer_table(const json& peers) {
  text_table table{{{"peer", 8},
                    {"epoch", 5, true},
                    {"toward epoch", 0, true},
                    {"samples/s", 9, true},
                    {"connected"},
                    {"address"}}};
  std::size_t shown = 0;
  for (const auto& peer : peers) {
    if (++shown > peers_max)
      break;
    auto addresses = field(peer, "addresses");
    auto address = addresses.is_array() && !addresses.empty() ? addresses[0] : json(nullptr);
    bool self = field(peer, "self") == true;
    table.add_row(
      {cell(field(peer, "id"), short_id_length), cell(field(peer, "epoch"), 12),
       cell(field(peer, "samples_toward_epoch"), 12), cell(field(peer, "samples_per_second"), 12),
       self ? "(itself)" : (field(peer, "connected") == true ? "yes" : "no"), cell(address, 80)});
  }
  std::string out;
  for (const auto& line : table.lines())
    out += line + "\n";
  if (peers.size() > peers_max)
    out += "and " + readable_count(peers.size() - peers_max) + " more; --json shows all\n";
  return out;
}

} // namespace

std::string departures_text(const json& peers, std::int64_t now) {
  std::string out;
  for (bool back : {false, true})
    for (const auto& [id, left] : departures_in(peers, back, now))
      out += printable(id.substr(0, short_id_length), short_id_length) + "  " + to_text(left, now)
             + (back ? "; it is back\n" : "\n");
  return out.empty() ? out : "\nleft in the last ten minutes\n" + out;
}

std::string status_text(const json& document, const json& peers) {
  std::string out;
  std::size_t shown = 0;
  if (document.is_object())
    for (const auto& [key, value] : document.items()) {
      if (key == "notices" || key == "actors") // `notice` says them; for programs
        continue;
      if (++shown > fields_max) {
        out += "and " + readable_count(document.size() - fields_max) + " more; --json shows all\n";
        break;
      }
      auto label = label_of(key);
      out += label + std::string(label.size() < label_width ? label_width - label.size() : 1, ' ')
             + value_of(value, key) + "\n";
    }
  return out + "\n" + peer_table(peers.is_array() ? peers : json::array());
}

} // namespace waggle
