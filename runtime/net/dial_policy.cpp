#include "runtime/net/dial_policy.hpp"

#include <boost/asio/ip/address.hpp>

namespace waggle::net {

namespace {

namespace ip = boost::asio::ip;

host_kind kind_of(const ip::address_v4& address) {
  if (address.is_loopback())
    return host_kind::loopback;
  auto bytes = address.to_bytes();
  if (bytes[0] == 169 && bytes[1] == 254)
    return host_kind::link_local;
  bool nowhere = bytes[0] == 0 || address.is_multicast() || address == ip::address_v4::broadcast();
  return nowhere ? host_kind::nowhere : host_kind::usual;
}

host_kind kind_of(const ip::address_v6& address) {
  if (address.is_v4_mapped())
    return kind_of(ip::make_address_v4(ip::v4_mapped, address));
  if (address.is_loopback())
    return host_kind::loopback;
  if (address.is_link_local())
    return host_kind::link_local;
  bool nowhere = address.is_unspecified() || address.is_multicast();
  return nowhere ? host_kind::nowhere : host_kind::usual;
}

} // namespace

host_kind kind_of(std::string_view host) {
  boost::system::error_code error;
  auto address = ip::make_address(std::string{host}, error);
  if (error)
    return host == "localhost" ? host_kind::loopback : host_kind::name;
  return address.is_v4() ? kind_of(address.to_v4()) : kind_of(address.to_v6());
}

bool is_numeric(std::string_view host) {
  boost::system::error_code error;
  (void)ip::make_address(std::string{host}, error);
  return !error;
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
