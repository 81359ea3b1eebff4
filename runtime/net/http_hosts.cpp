#include "runtime/net/http_hosts.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/net/dial_policy.hpp"

namespace waggle::net {

namespace {

constexpr std::array<std::string_view, 6> private_suffixes{".localhost", ".local", ".internal",
                                                           ".home.arpa", ".lan",   ".svc"};

} // namespace

std::string host_name(std::string_view header) {
  auto name = header;
  if (name.starts_with('['))
    name = name.substr(1, name.find(']') == std::string_view::npos ? 0 : name.find(']') - 1);
  else
    name = name.substr(0, name.find(':'));
  std::string out{name};
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (out.ends_with('.'))
    out.pop_back();
  return out;
}

bool answers_host(const http_request& request, const std::set<std::string>& own) {
  std::string_view target = request.target;
  bool is_live_page = target == "/" || target.starts_with("/?") || target.starts_with("/live/");
  if (!target.starts_with("/api/") && target != "/sd" && !is_live_page)
    return true;
  auto host = host_name(request.host);
  // Without the header: HTTP/1.0, which no browser speaks.
  if (request.host.empty() || kind_of(host) != host_kind::name)
    return true;
  bool is_private = host.find('.') == std::string::npos
                    || std::any_of(private_suffixes.begin(), private_suffixes.end(),
                                   [&](std::string_view end) { return host.ends_with(end); });
  return is_private || own.contains(host);
}

} // namespace waggle::net
