#include "runtime/watch/events.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>

#include <nlohmann/json.hpp>

namespace waggle::watch {

namespace {

using json = nlohmann::ordered_json;

constexpr event_type types[]{
  {"start", "run", "●", false, "Started[, version {version}][, at epoch {epoch}]"},
  {"stop", "run", "■", false, "Stops[: {reason}]"},
  {"phase", "run", "→", false, "{from} → {to}[: {reason}]", event_kind::routine},
  {"epoch", "epochs", "·", false,
   "Epoch {epoch} ended[ in {duration_s}][, loss {loss}][, {samples} samples]", event_kind::epoch},
  {"round", "rounds", "◐", false, {}, event_kind::round},
  {"peer_joined", "peers", "+", false, "{other} joined[ from {address}][ by {link}]",
   event_kind::arrival},
  {"peer_left", "peers", "✕", true, "{other} left[: {reason}][, after {after_s}]",
   event_kind::departure},
  {"member_lost", "peers", "✕", true, "{other} was lost in a round[: {reason}]", event_kind::fault},
  {"excluded", "peers", "✕", true, "{other} was left out of a round[: {reason}]",
   event_kind::fault},
  {"state_sent", "run", "↑", false,
   "State sent to {other}:[ {bytes}][ in {duration_s}][, {outcome}]", event_kind::routine},
  {"state_received", "run", "↓", false,
   "State received from {other}:[ {bytes}][ in {duration_s}][, {outcome}]", event_kind::routine},
  {"checkpoint", "run", "▼", false,
   "Checkpoint[ of epoch {epoch}]:[ {bytes}][ in {duration_s}][, {outcome}]",
   event_kind::checkpoint},
  {"disbelieved", "problems", "!", true, {}}, // remarks, as in remark::what
  {"history", "problems", "!", true, {}},
  {"split", "problems", "!", true, {}},
  {"notice", "problems", "!", true, {}},
  {"clock", "problems", "!", true, {}},
  {"restart", "problems", "!", true, "The {actor} was restarted[: {reason}]"},
  {"refused", "problems", "!", true, "Refused {count}[: {reason}]"},
  {"slow", "peers", "▲", true, "{other} is slow: {text}", event_kind::slow},
};
constexpr std::size_t first_remark = 12;
static_assert(types[first_remark + static_cast<std::size_t>(remark::what::restart)].name
              == "restart");

struct field {
  field(const char* name, std::string text) : key(name) {
    if (text.size() > text_bytes_max) {
      text.resize(text_bytes_max);
      text += "…";
    }
    if (!text.empty())
      value = std::move(text);
  }
  field(const char* name, double number) : key(name) {
    if (std::isfinite(number))
      value = number;
  }
  field(const char* name, std::integral auto number) : key(name), value(number) {}
  field(const char* name, const peer_id& peer) : key(name), value(to_string(peer)) {}
  template <class T>
  field(const char* name, const std::optional<T>& known) : key(name) {
    if (known)
      *this = field{name, *known};
  }

  const char* key;
  json value; // null: the line does not have it
};

void add(json& to, std::initializer_list<field> all) {
  for (const auto& each : all)
    if (!each.value.is_null())
      to[each.key] = each.value;
}

/// Microseconds are enough: three digits after the point.
double ms(double value) {
  return std::round(value * 1000) / 1000;
}
std::optional<double> ms(const std::optional<double>& value) {
  return value ? std::optional{ms(*value)} : value;
}

json member(const round_member& m) {
  json out;
  add(out, {{"peer", m.peer},
            {"self", m.self ? std::optional{true} : std::nullopt},
            {"contributed", m.contributed},
            {"reduces", m.reduces},
            {"samples", m.samples},
            {"first_ms", ms(m.first_ms)},
            {"last_ms", ms(m.last_ms)},
            {"result_first_ms", ms(m.result_first_ms)},
            {"result_last_ms", ms(m.result_last_ms)},
            {"bytes_in", m.bytes_in},
            {"bytes_out", m.bytes_out},
            {"rtt_ms", ms(m.rtt_ms)}});
  return out;
}

struct type_name {
  std::string_view operator()(const state_moved& e) const {
    return e.sent ? "state_sent" : "state_received";
  }
  std::string_view operator()(const remark& e) const {
    return types[first_remark + static_cast<std::size_t>(e.type)].name;
  }
  std::string_view operator()(const auto& e) const { return e.type; }
};

/// The line of an event of each type.
struct writer_of_lines {
  peer_id writer;
  swarm_time now;

  [[nodiscard]] json line(std::string_view type, std::initializer_list<field> fields) const {
    json out{{"t", unix_ms(now)}, {"type", type}, {"peer", to_string(writer)}};
    add(out, fields);
    return out;
  }
  json operator()(const started& e) const {
    return line(e.type,
                {{"version", e.version}, {"run", e.run}, {"role", e.role}, {"epoch", e.epoch}});
  }
  json operator()(const stopping& e) const { return line(e.type, {{"reason", e.reason}}); }
  json operator()(const phase_changed& e) const {
    return line(e.type, {{"from", e.from}, {"to", e.to}, {"reason", e.reason}});
  }
  json operator()(const epochs_ended& e) const {
    return line(e.type, {{"epoch", e.epoch},
                         {"epochs", e.epochs},
                         {"samples", e.samples},
                         {"loss", e.loss},
                         {"duration_s", e.duration_s}});
  }
  json operator()(const round_ended& e) const {
    auto out = line(e.type, {{"round", to_string(e.round)},
                             {"kind", e.kind},
                             {"epoch", e.epoch},
                             {"outcome", e.outcome},
                             {"reason", e.reason},
                             {"began", e.began},
                             {"duration_ms", ms(e.duration_ms)},
                             {"search_ms", ms(e.search_ms)},
                             {"agreement_ms", ms(e.agreement_ms)},
                             {"recovery_ms", ms(e.recovery_ms)},
                             {"spans", e.spans}});
    auto& members = out["members"] = json::array();
    for (const auto& m : e.members)
      members.push_back(member(m));
    return out;
  }
  json operator()(const peer_joined& e) const {
    return line(e.type,
                {{"other", e.other}, {"address", e.address}, {"role", e.role}, {"link", e.link}});
  }
  json operator()(const peer_left& e) const {
    return line(e.type, {{"other", e.other},
                         {"reason", e.reason},
                         {"after_s", e.after_s},
                         {"ordered", e.ordered ? std::optional{true} : std::nullopt},
                         {"code", e.code}});
  }
  json operator()(const state_moved& e) const {
    return line(type_name{}(e), {{"other", e.other},
                                 {"bytes", e.bytes},
                                 {"duration_s", e.duration_s},
                                 {"epoch", e.epoch},
                                 {"outcome", e.outcome}});
  }
  json operator()(const checkpoint& e) const {
    return line(e.type, {{"epoch", e.epoch},
                         {"bytes", e.bytes},
                         {"duration_s", e.duration_s},
                         {"outcome", e.outcome}});
  }
  json operator()(const remark& e) const {
    return line(type_name{}(e), {{e.type == remark::what::restart ? "actor" : "text", e.text},
                                 {e.type == remark::what::clock ? "ms" : "number", e.number}});
  }
  json operator()(const refused& e) const {
    return line(e.type, {{"count", e.count}, {"reason", e.reason}});
  }
  json operator()(const slow& e) const {
    return line(e.type,
                {{"other", e.other}, {"cause", e.cause}, {"text", e.text}, {"number", e.number}});
  }
  json operator()(const auto& e) const { // member_lost, excluded
    auto round = e.round.is_zero() ? std::string{} : to_string(e.round);
    return line(e.type, {{"other", e.other}, {"round", round}, {"reason", e.reason}});
  }
};

} // namespace

std::span<const event_type> event_types() {
  return types;
}

const event_type* find_event_type(std::string_view name) {
  auto found = std::ranges::find(types, name, &event_type::name);
  return found != std::end(types) ? found : nullptr;
}

const std::string& event_types_json() {
  static const std::string made = [] {
    json all;
    for (const auto& each : types) {
      auto& row = all[std::string{each.name}] = {{"group", each.group}, {"glyph", each.glyph}};
      if (each.problem)
        row["problem"] = true;
      if (!each.sentence.empty())
        row["sentence"] = each.sentence;
    }
    return all.dump();
  }();
  return made;
}

event_kind kind_of(std::string_view type, std::string_view outcome) {
  const auto* row = find_event_type(type);
  if (row == nullptr)
    return event_kind::other;
  bool succeeded = outcome.empty() || outcome == "ok" || outcome == "complete";
  bool routine = row->kind == event_kind::routine || row->kind == event_kind::checkpoint;
  return routine && !succeeded ? event_kind::other : row->kind;
}

event_kind kind_of(const event& what) {
  auto outcome = [](const auto& e) -> std::string_view {
    if constexpr (requires { e.outcome; })
      return e.outcome;
    return {};
  };
  return kind_of(std::visit(type_name{}, what), std::visit(outcome, what));
}

std::int64_t unix_ms(swarm_time t) {
  return to_nanoseconds(t) / 1'000'000;
}

std::string fields_of(const event& what, const peer_id& writer, swarm_time now) {
  auto out = std::visit(writer_of_lines{writer, now}, what);
  // Invalid UTF-8, also of a text that was cut, becomes U+FFFD.
  auto text = out.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

} // namespace waggle::watch
