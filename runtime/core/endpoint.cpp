#include "runtime/core/endpoint.hpp"

#include <charconv>

namespace waggle {

std::string to_string(const endpoint& where) {
  auto port = std::to_string(where.port);
  if (where.host.find(':') != std::string::npos)
    return "[" + where.host + "]:" + port;
  return where.host + ":" + port;
}

result<endpoint> parse_endpoint(std::string_view text) {
  auto bad = [&](const char* why) {
    return failure{ec::bad_config, "'" + std::string{text} + "' is not HOST:PORT: " + why};
  };
  if (auto scheme = text.find("://"); scheme != std::string_view::npos)
    return bad("remove the part before the host");
  auto colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return bad("the port is missing");
  auto host = text.substr(0, colon);
  auto digits = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return bad("an IPv6 address goes into [brackets]");
  if (host.empty())
    return bad("the host is missing");
  if (host.size() > host_bytes_max)
    return bad("the host is too long");
  unsigned port = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size() || port > 65535)
    return bad("the port is a number from 0 to 65535");
  return endpoint{std::string{host}, static_cast<std::uint16_t>(port)};
}

} // namespace waggle
