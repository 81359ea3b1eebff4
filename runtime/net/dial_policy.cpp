#include "runtime/net/dial_policy.hpp"

#include "runtime/net/host_key.hpp"

namespace waggle::net {

namespace ip = boost::asio::ip;

host_kind kind_of(std::string_view host) {
  auto found = numeric(host);
  if (!found)
    return host == "localhost" ? host_kind::loopback : host_kind::name;
  auto address = unmapped(*found);
  if (address.is_loopback())
    return host_kind::loopback;
  auto ipv4 = address.is_v4() ? address.to_v4().to_bytes() : ip::address_v4::bytes_type{};
  if (address.is_v4() ? ipv4[0] == 169 && ipv4[1] == 254 : address.to_v6().is_link_local())
    return host_kind::link_local;
  bool nowhere = address.is_unspecified() || address.is_multicast()
                 || (address.is_v4() && (ipv4[0] == 0 || address == ip::address_v4::broadcast()));
  return nowhere ? host_kind::nowhere : host_kind::usual;
}

bool is_of_private_network(std::string_view host) {
  auto found = numeric(host);
  if (!found)
    return false;
  auto address = unmapped(*found);
  if (address.is_v6())
    return (address.to_v6().to_bytes()[0] & 0xFEU) == 0xFCU; // RFC 4193
  auto bytes = address.to_v4().to_bytes();
  return bytes[0] == 10 || (bytes[0] == 172 && bytes[1] / 16 == 1)
         || (bytes[0] == 192 && bytes[1] == 168)     // RFC 1918
         || (bytes[0] == 100 && bytes[1] / 64 == 1); // RFC 6598, behind a carrier's router
}

bool is_numeric(std::string_view host) {
  return numeric(host).has_value();
}

dial_policy::dial_policy(const std::vector<endpoint>& own) {
  for (const auto& where : own)
    reached_from(where.host);
}

void dial_policy::reached_from(std::string_view host) {
  auto kind = kind_of(host);
  loopback_ = loopback_ || kind == host_kind::loopback;
  link_local_ = link_local_ || kind == host_kind::link_local;
}

bool dial_policy::permits(const endpoint& where) const {
  if (where.port == 0 || where.host == "localhost")
    return false;
  switch (kind_of(where.host)) {
    case host_kind::name:
    case host_kind::nowhere:
      return false;
    case host_kind::loopback:
      return loopback_;
    case host_kind::link_local:
      return link_local_;
    case host_kind::usual:
      return true;
  }
  return false;
}

} // namespace waggle::net
