#include "runtime/status/status_board.hpp"

#include <cstring>

namespace waggle {

namespace {

constexpr const char* json_type = "application/json";
constexpr const char* routes =
  R"(["/metrics","/healthz","/readyz","/api/v1/status","/api/v1/peers"])";

net::http_response json(unsigned status, std::string body) {
  return {status, json_type, std::move(body)};
}

} // namespace

void status_board::show_status(std::string text) {
  std::lock_guard guard{mutex_};
  status_ = std::move(text);
}

void status_board::show_peers(std::string text) {
  std::lock_guard guard{mutex_};
  peers_ = std::move(text);
}

void status_board::show_readiness(bool ready, std::string text) {
  std::lock_guard guard{mutex_};
  ready_ = ready;
  readiness_ = std::move(text);
}

net::http_response status_board::answer(const net::http_request& request) const {
  auto route = request.target.substr(0, request.target.find('?'));
  bool known = std::strstr(routes, ("\"" + route + "\"").c_str()) != nullptr;
  if (!known)
    return json(404, R"({"error":"there is no such page","routes":)" + std::string{routes} + "}\n");
  if (request.method != "GET" && request.method != "HEAD")
    return json(405, "{\"error\":\"this page is read-only: use GET\"}\n");
  if (route == "/metrics")
    return {200, "text/plain; version=0.0.4; charset=utf-8", metrics_->text()};
  if (route == "/healthz")
    return {200, "text/plain; charset=utf-8", "alive\n"};
  std::lock_guard guard{mutex_};
  if (route == "/readyz")
    return {ready_ ? 200U : 503U, "text/plain; charset=utf-8",
            (ready_ ? "ready" : "not ready") + (readiness_.empty() ? "" : ": " + readiness_)
              + "\n"};
  return json(200, route == "/api/v1/status" ? status_ : peers_);
}

} // namespace waggle
