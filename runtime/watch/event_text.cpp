#include "runtime/watch/event_text.hpp"

#include <fmt/format.h>

#include "runtime/watch/event_types.hpp"
#include "runtime/watch/json_fields.hpp"

namespace waggle {

namespace {

using json = nlohmann::ordered_json;

std::string number_text(const std::string& name, double x) {
  if (name == "duration_s" || name == "after_s")
    return span_text(1000 * x);
  if (name == "bytes")
    return x < 1e6 ? fmt::format("{:.0f} bytes", x) : fmt::format("{:.1f} MB", x / 1e6);
  if (name == "count")
    return fmt::format("{:.0f} input{}", x, x == 1 ? "" : "s");
  return name == "loss" ? fmt::format("{:.3f}", x) : fmt::format("{:.15g}", x);
}

/// Empty: the event does not have it.
std::string field_text(const json& event, const std::string& name) {
  if (auto x = number_in(event, name.c_str()))
    return number_text(name, *x);
  auto text = text_in(event, name.c_str());
  return name != "other" || text.empty() ? text : "peer " + text.substr(0, 8);
}

/// "{other} left[: {reason}]": what stands in brackets is left out without its field.
std::string filled_in(const json& event, std::string_view form) {
  std::string out;
  while (!form.empty()) {
    auto next = form.substr(0, form.find_first_of("[{"));
    out += next;
    form.remove_prefix(next.size());
    auto end = form.starts_with('[') ? form.find(']') : form.find('}');
    if (form.empty() || end == std::string_view::npos)
      break;
    auto part = form.substr(form.starts_with('[') ? 1 : 0, end - (form.starts_with('[') ? 1 : -1));
    auto begin = part.find('{');
    auto close = part.find('}');
    if (auto text = field_text(event, std::string{part.substr(begin + 1, close - begin - 1)});
        !text.empty())
      out.append(part.substr(0, begin)).append(text).append(part.substr(close + 1));
    form.remove_prefix(end + 1);
  }
  return out;
}

std::string round_text(const json& in) {
  auto out = "Round " + text_in(in, "round").substr(0, 8) + " (" + text_in(in, "kind")
             + ") of epoch " + field_text(in, "epoch") + " " + text_in(in, "outcome");
  if (auto reason = text_in(in, "reason"); !reason.empty())
    out += ": " + reason;
  out += ", " + span_text(number_in(in, "duration_ms").value_or(0));
  auto members = in.find("members");
  if (members == in.end() || !members->is_array() || members->empty()) // nothing was sent in it
    return out;
  std::string last;
  double when = -1;
  for (const auto& m : *members)
    if (auto at = m.is_object() ? number_in(m, "last_ms") : std::nullopt;
        at && *at > when && field(m, "self") != true) {
      when = *at;
      last = text_in(m, "peer").substr(0, 8);
    }
  out += ", " + std::to_string(members->size()) + " members";
  return last.empty() ? out
                      : out + ", the last contribution from " + last + " after " + span_text(when);
}

} // namespace

std::string plural(std::size_t n, const std::string& word) {
  return std::to_string(n) + " " + word + (n == 1 ? "" : "s");
}

std::string span_text(double ms) {
  if (ms < 1000)
    return fmt::format("{:.{}f} ms", ms, ms < 10 ? 1 : 0);
  auto s = ms / 1000;
  return s < 120    ? fmt::format("{:.{}f} s", s, s < 10 ? 1 : 0)
         : s < 7200 ? fmt::format("{:.0f} min", s / 60)
                    : fmt::format("{:.1f} h", s / 3600);
}

std::string event_text(const json& event) {
  auto type = text_in(event, "type");
  if (type == "round")
    return round_text(event);
  const auto* row = watch::find_event_type(type);
  std::string form{row == nullptr ? "" : row->sentence};
  if (type == "epoch" && number_in(event, "epochs").value_or(1) > 1)
    form = "{epochs} epochs ended, the last is {epoch}" + form.substr(form.find('['));
  else if (type == "slow" && text_in(event, "cause").empty())
    form = "{other} is not slow any more";
  else if (form.empty())
    form = event.contains("other") ? "{other}[: {text}][: {reason}]" : "[{text}][{reason}]";
  auto out = filled_in(event, form);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z')
    out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out.empty() ? type : out;
}

} // namespace waggle
