#include "runtime/watch/events.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

namespace waggle::watch {

namespace {

using json = nlohmann::ordered_json;

template <class... Handlers>
struct overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
overloaded(Handlers...) -> overloaded<Handlers...>;

void put(json& out, const char* key, std::string text) {
  if (text.empty())
    return;
  if (text.size() > text_bytes_max) {
    text.resize(text_bytes_max);
    text += "…";
  }
  out[key] = std::move(text);
}
void put(json& out, const char* key, double value) {
  if (std::isfinite(value))
    out[key] = value;
}
void put(json& out, const char* key, std::uint64_t value) {
  out[key] = value;
}
template <class T>
void put(json& out, const char* key, const std::optional<T>& value) {
  if (value)
    put(out, key, *value);
}
/// Microseconds are enough: three digits after the point.
void put_ms(json& out, const char* key, double value) {
  put(out, key, std::round(value * 1000) / 1000);
}
void put_ms(json& out, const char* key, const std::optional<double>& value) {
  if (value)
    put_ms(out, key, *value);
}

json member(const round_member& m) {
  json out;
  out["peer"] = to_string(m.peer);
  if (m.self)
    out["self"] = true;
  out["contributed"] = m.contributed;
  out["reduces"] = m.reduces;
  put(out, "samples", m.samples);
  put_ms(out, "first_ms", m.first_ms);
  put_ms(out, "last_ms", m.last_ms);
  put_ms(out, "result_first_ms", m.result_first_ms);
  put_ms(out, "result_last_ms", m.result_last_ms);
  put(out, "bytes_in", m.bytes_in);
  put(out, "bytes_out", m.bytes_out);
  put_ms(out, "rtt_ms", m.rtt_ms);
  return out;
}

const char* name_of(remark::what type) {
  switch (type) {
    case remark::what::disbelieved:
      return "disbelieved";
    case remark::what::history:
      return "history";
    case remark::what::split:
      return "split";
    case remark::what::notice:
      return "notice";
    case remark::what::clock:
      return "clock";
    case remark::what::restart:
      return "restart";
  }
  return "notice";
}

void put_about(json& out, const peer_id& other, const round_id& round, const std::string& reason) {
  out["other"] = to_string(other);
  if (!round.is_zero())
    out["round"] = to_string(round);
  put(out, "reason", reason);
}

} // namespace

event_kind kind_of(const event& what) {
  if (std::holds_alternative<round_ended>(what))
    return event_kind::round;
  return std::holds_alternative<epochs_ended>(what) ? event_kind::epoch : event_kind::other;
}

std::int64_t unix_ms(swarm_time t) {
  return to_nanoseconds(t) / 1'000'000;
}

std::string fields_of(const event& what, const peer_id& writer, swarm_time now) {
  json out;
  auto begin = [&](std::string_view type) {
    out["t"] = unix_ms(now);
    out["type"] = type;
    out["peer"] = to_string(writer);
  };
  std::visit(overloaded{[&](const started& e) {
                          begin(e.type);
                          put(out, "version", e.version);
                          put(out, "run", e.run);
                          put(out, "role", e.role);
                          put(out, "epoch", e.epoch);
                        },
                        [&](const stopping& e) {
                          begin(e.type);
                          put(out, "reason", e.reason);
                        },
                        [&](const phase_changed& e) {
                          begin(e.type);
                          put(out, "from", e.from);
                          put(out, "to", e.to);
                          put(out, "reason", e.reason);
                        },
                        [&](const epochs_ended& e) {
                          begin(e.type);
                          put(out, "epoch", e.epoch);
                          put(out, "epochs", e.epochs);
                          put(out, "samples", e.samples);
                          put(out, "loss", e.loss);
                          put(out, "duration_s", e.duration_s);
                        },
                        [&](const round_ended& e) {
                          begin(e.type);
                          out["round"] = to_string(e.round);
                          put(out, "kind", e.kind);
                          put(out, "epoch", e.epoch);
                          put(out, "outcome", e.outcome);
                          put(out, "reason", e.reason);
                          out["began"] = e.began;
                          put_ms(out, "duration_ms", e.duration_ms);
                          put_ms(out, "search_ms", e.search_ms);
                          put_ms(out, "agreement_ms", e.agreement_ms);
                          put_ms(out, "recovery_ms", e.recovery_ms);
                          auto& members = out["members"] = json::array();
                          for (const auto& m : e.members)
                            members.push_back(member(m));
                        },
                        [&](const peer_joined& e) {
                          begin(e.type);
                          out["other"] = to_string(e.other);
                          put(out, "address", e.address);
                          put(out, "role", e.role);
                          put(out, "link", e.link);
                        },
                        [&](const peer_left& e) {
                          begin(e.type);
                          put_about(out, e.other, {}, e.reason);
                          put(out, "after_s", e.after_s);
                        },
                        [&](const state_moved& e) {
                          begin(e.sent ? "state_sent" : "state_received");
                          if (e.other)
                            out["other"] = to_string(*e.other);
                          put(out, "bytes", e.bytes);
                          put(out, "duration_s", e.duration_s);
                          put(out, "epoch", e.epoch);
                          put(out, "outcome", e.outcome);
                        },
                        [&](const checkpoint& e) {
                          begin(e.type);
                          put(out, "epoch", e.epoch);
                          put(out, "bytes", e.bytes);
                          put(out, "duration_s", e.duration_s);
                          put(out, "outcome", e.outcome);
                        },
                        [&](const remark& e) {
                          begin(name_of(e.type));
                          put(out, e.type == remark::what::restart ? "actor" : "text", e.text);
                          put(out, e.type == remark::what::clock ? "ms" : "number", e.number);
                        },
                        [&](const refused& e) {
                          begin(e.type);
                          put(out, "count", e.count);
                          put(out, "reason", e.reason);
                        },
                        [&](const slow& e) {
                          begin(e.type);
                          out["other"] = to_string(e.other);
                          put(out, "cause", e.cause);
                          put(out, "text", e.text);
                          put(out, "number", e.number);
                        },
                        [&](const auto& e) { // member_lost, excluded
                          begin(e.type);
                          put_about(out, e.other, e.round, e.reason);
                        }},
             what);
  // Invalid UTF-8, also of a text that was cut, becomes U+FFFD.
  auto text = out.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.substr(1, text.size() - 2);
}

} // namespace waggle::watch
