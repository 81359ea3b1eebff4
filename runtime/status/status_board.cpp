#include "runtime/status/status_board.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "runtime/status/run_curves.hpp"
#include "runtime/watch/event_stream.hpp"
#include "runtime/watch/event_types.hpp"

namespace waggle {

namespace {

constexpr const char* json_type = "application/json";
constexpr std::array<std::string_view, 9> routes{
  "/metrics",      "/healthz",       "/readyz",        "/sd",           "/api/v1/status",
  "/api/v1/peers", "/api/v1/rounds", "/api/v1/events", "/api/v1/curves"};

std::string routes_as_json() {
  std::string out;
  for (auto route : routes)
    out.append(out.empty() ? "[\"" : ",\"").append(route).append("\"");
  return out + "]";
}

net::http_response json(unsigned status, std::string body) {
  return {status, json_type, std::move(body), {}};
}

/// Replaces each value that follows `key`, up to the next quote that is not escaped.
void replace_values(std::string& text, std::string_view key, const std::string& value) {
  std::string out;
  std::size_t at = 0;
  for (auto next = text.find(key); next != std::string::npos; next = text.find(key, at)) {
    auto begin = next + key.size();
    auto end = begin;
    while (end < text.size() && text[end] != '"')
      end += text[end] == '\\' ? 2 : 1;
    out.append(text, at, begin - at).append(value);
    at = std::min(end, text.size());
  }
  text = out.append(text, at);
}

std::string without_line_end(std::string text) {
  while (text.ends_with('\n'))
    text.pop_back();
  return text;
}

} // namespace

status_board::status_board(std::shared_ptr<metric_families> metrics,
                           std::shared_ptr<event_ring> events, page_audience pages,
                           std::shared_ptr<const run_curves> curves)
  : metrics_(std::move(metrics)), gauges_(*metrics_),
    events_(events ? std::move(events) : std::make_shared<event_ring>("0")),
    curves_(curves ? std::move(curves) : std::make_shared<run_curves>()), pages_(pages) {}

void status_board::show(document what, std::string json) {
  std::lock_guard guard{mutex_};
  documents_[static_cast<std::size_t>(what)] = std::move(json);
}

void status_board::show(const peer_view& status, swarm_time now) {
  gauges_.show(status);
  auto json = status_document(status, &since_, now);
  std::lock_guard guard{mutex_};
  documents_[static_cast<std::size_t>(document::status)] = std::move(json);
  now_ = now;
}

void status_board::show_readiness(bool ready, std::string text) {
  std::lock_guard guard{mutex_};
  ready_ = ready;
  readiness_ = std::move(text);
  changed_.notify_all();
}

std::string status_board::why_not_ready() const {
  std::lock_guard guard{mutex_};
  return ready_ ? std::string{} : readiness_;
}

status status_board::wait_until_ready(milliseconds timeout) const {
  std::unique_lock guard{mutex_};
  constexpr milliseconds for_ever = std::chrono::hours{24 * 365}; // more would overflow
  changed_.wait_for(guard, std::min(timeout, for_ever), [this] { return ready_ || ended_; });
  if (ended_)
    return failure{ec::shutting_down, "this peer has left the run"};
  if (!ready_)
    return failure{ec::timeout, "not ready: " + readiness_};
  return done{};
}

void status_board::end() {
  std::lock_guard guard{mutex_};
  ended_ = true;
  changed_.notify_all();
}

net::http_response status_board::answer(const net::http_request& request) const {
  auto reply = page(request);
  if (!request.local && !request.member && reply.content_type == json_type)
    hide_run(reply.body);
  return reply;
}

void status_board::hide_run(std::string& json) const {
  replace_values(json, "\"run\":\"", metrics_->run());
}

net::http_response status_board::stream(const net::http_request& request) const {
  if (request.cross_origin)
    return json(403, "{\"error\":\"events are for pages of this peer\"}\n");
  net::http_response reply{200, "text/event-stream", {}, {}};
  if (request.method == "HEAD")
    return reply;
  event_stream::documents show{[this] { return snapshot(); }, [this] { return vitals(); }, {}};
  if (!request.local && !request.member)
    show.mask = [this](std::string& text) { hide_run(text); };
  // The transport, which asks the stream, ends before the board does.
  reply.stream = [cursor = std::make_shared<event_stream>(events_, std::move(show),
                                                          request.last_event_id)](steady_time now) {
    return cursor->next(now);
  };
  return reply;
}

std::string status_board::rounds() const {
  std::string out = "{\"rounds\":[";
  auto separator = "";
  for (const auto& line : events_->newest().rounds) {
    out.append(separator).append(*line);
    separator = ",";
  }
  return out + "]}\n";
}

net::http_response status_board::curves(std::string_view query) const {
  constexpr std::string_view name = "points=";
  std::size_t points = training_curves::points_max;
  bool good = query.empty();
  if (query.starts_with(name)) {
    auto end = query.data() + query.size();
    auto read = std::from_chars(query.data() + name.size(), end, points);
    good = read.ec == std::errc{} && read.ptr == end && points >= 2;
  }
  return good ? json(200, curves_->json(points))
              : json(400, "{\"error\":\"the query of curves is points=N, with N from 2 on\"}\n");
}

std::string status_board::vitals() const {
  std::lock_guard guard{mutex_};
  return "{\"t\":" + std::to_string(watch::unix_ms(now_))
         + ",\"status\":" + without_line_end(shown(document::status))
         + ",\"peers\":" + without_line_end(shown(document::peers)) + "}";
}

std::string status_board::snapshot() const {
  std::lock_guard guard{mutex_};
  return "{\"v\":1,\"now\":" + std::to_string(watch::unix_ms(now_))
         + ",\"types\":" + watch::event_types_json() + ",\"self\":" + shown(document::self)
         + ",\"status\":" + without_line_end(shown(document::status))
         + ",\"peers\":" + without_line_end(shown(document::peers));
}

net::http_response status_board::page(const net::http_request& request) const {
  auto route = request.target.substr(0, request.target.find('?'));
  bool is_page = is_live_route(route);
  if ((is_page || route == "/api/v1/events") && !shows_pages(request.local))
    return json(404, pages_ == page_audience::none
                       ? R"({"error":"this peer was started with --pages none"})"
                         "\n"
                       : R"({"error":"this peer shows its page to its own machine only: --pages"})"
                         "\n");
  if (!is_page && std::find(routes.begin(), routes.end(), route) == routes.end())
    return json(404, R"({"error":"there is no such page","routes":)" + routes_as_json() + "}\n");
  if (request.method != "GET" && request.method != "HEAD")
    return json(405, "{\"error\":\"this page is read-only: use GET\"}\n");
  if (is_page)
    return live_page(request);
  if (route == "/metrics")
    return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_->text()};
  if (route == "/healthz")
    return {200, "text/plain; charset=utf-8", "alive\n"};
  if (route == "/api/v1/rounds")
    return json(200, rounds());
  if (route == "/api/v1/events")
    return stream(request);
  if (route == "/api/v1/curves")
    return curves(
      std::string_view{request.target}.substr(std::min(request.target.size(), route.size() + 1)));
  std::lock_guard guard{mutex_};
  if (route == "/readyz")
    return {ready_ ? 200U : 503U, "text/plain; charset=utf-8",
            (ready_ ? "ready" : "not ready") + (readiness_.empty() ? "" : ": " + readiness_)
              + "\n"};
  return json(200, shown(route == "/sd"              ? document::targets
                         : route == "/api/v1/status" ? document::status
                                                     : document::peers));
}

} // namespace waggle
