#include "runtime/status/replay_page.hpp"

#include "runtime/status/live_page.hpp"

namespace waggle {

namespace {

net::http_response refusal(unsigned status, const std::string& why) {
  return {status, "application/json", "{\"error\":\"" + why + "\"}\n"};
}

} // namespace

net::http_response replay_page(const std::shared_ptr<const recording>& from,
                               const net::http_request& request) {
  if (!request.local)
    return refusal(403, "a replay is shown to its own machine only");
  auto question = request.target.find('?');
  auto route = request.target.substr(0, question);
  if (!is_live_route(route) && route != "/api/v1/events")
    return refusal(404, "a replay has a page at / and /api/v1/events");
  if (request.method != "GET" && request.method != "HEAD")
    return refusal(405, "this page is read-only: use GET");
  if (is_live_route(route))
    return live_page(request);
  if (request.cross_origin)
    return refusal(403, "events are for pages of this replay");
  auto wanted = replay_request::parse(
    question == std::string::npos ? "" : std::string_view{request.target}.substr(question + 1));
  if (!wanted)
    return refusal(400, wanted.error().detail);
  if (wanted->as && !from->peers().contains(*wanted->as))
    return refusal(404, "there is no log of this peer");
  net::http_response reply{200, "text/event-stream", {}};
  if (request.method == "GET")
    reply.stream = [cursor = std::make_shared<replay>(from, *wanted)](steady_time now) {
      return cursor->next(now);
    };
  return reply;
}

} // namespace waggle
