#include "runtime/status/live_page.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "runtime/net/gzip.hpp"
#include "runtime/status/symptoms.hpp"
#include "runtime/watch/replay.hpp"

namespace waggle {

namespace {

constexpr std::string_view folder = "/live/";

/// Everything comes from this peer, nothing is inline, nothing is sent, nobody frames it. Charts
/// set styles through the object model only, which the policy does not restrict.
constexpr const char* policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What runs on its own: documents and the worker. Other files are under the policy of these, which
/// would be a twentieth of the bytes of a fresh page if each file had it.
bool has_policy(const live_file& file) {
  return file.type.starts_with("text/html") || file.type.starts_with("image/svg")
         || file.path == "/live/shared.js";
}

net::http_response refusal(unsigned status, const std::string& why) {
  return {status, "application/json", "{\"error\":\"" + why + "\"}\n"};
}

} // namespace

page_audience parse_page_audience(std::string_view name) {
  return name == "none"    ? page_audience::none
         : name == "local" ? page_audience::local
                           : page_audience::all;
}

bool is_live_route(std::string_view route) {
  return route == "/" || route.starts_with(folder);
}

net::http_response live_page(const net::http_request& request) {
  auto route = std::string_view{request.target}.substr(0, request.target.find('?'));
  auto files = live_files();
  auto file = std::find_if(files.begin(), files.end(),
                           [&](const live_file& each) { return each.path == route; });
  net::http_response out;
  if (file == files.end()) {
    out.status = 404;
    out.body = "The page of this peer has no such file: the page is at /.\n";
    return out;
  }
  // Bytes that a server sends differ with the coding, and so does their tag (RFC 9110, 8.8.3.3).
  auto tag = "\"" + std::string{file->tag} + (request.gzip ? "-gzip\"" : "\"");
  out.content_type = file->type;
  out.cache = "no-cache";
  out.headers = {{"ETag", tag}, {"Vary", "Accept-Encoding"}, {"X-Content-Type-Options", "nosniff"}};
  if (has_policy(*file))
    out.headers.insert(out.headers.end(),
                       {{"Content-Security-Policy", policy}, {"Referrer-Policy", "no-referrer"}});
  if (request.if_none_match == tag) {
    out.status = 304;
    return out;
  }
  if (request.gzip) {
    out.headers.emplace_back("Content-Encoding", "gzip");
    out.body.assign(reinterpret_cast<const char*>(file->gzip.data()), file->gzip.size());
  } else {
    out.body = net::gunzip(file->gzip);
  }
  return out;
}

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
  replay::completion complete = [](nlohmann::ordered_json& status) { show_symptoms(status); };
  if (request.method == "GET")
    reply.stream = [cursor = std::make_shared<replay>(from, *wanted, complete)](steady_time now) {
      return cursor->next(now);
    };
  return reply;
}

} // namespace waggle
