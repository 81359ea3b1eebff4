#include "runtime/net/host_key.hpp"

#include <algorithm>

namespace waggle::net {

namespace ip = boost::asio::ip;

namespace {

ip::address_v6 network_of(const ip::address_v6& address) {
  auto bytes = address.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), std::uint8_t{0});
  return ip::address_v6{bytes};
}

} // namespace

std::optional<ip::address> numeric(std::string_view host) {
  boost::system::error_code error;
  auto address = ip::make_address(std::string{host}, error);
  return error ? std::nullopt : std::optional{address};
}

bool lacks_interface(const ip::address& address) {
  return address.is_v6() && address.to_v6().is_link_local() && address.to_v6().scope_id() == 0;
}

std::string text_of(const boost::system::error_code& error, std::string_view host) {
  auto address = numeric(host);
  bool invalid = error == boost::system::errc::invalid_argument;
  return invalid && address && lacks_interface(*address) ? std::string{add_interface}
                                                         : error.message();
}

ip::address unmapped(const ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  return address;
}

std::string host_key(const ip::address& remote, const ip::address& local) {
  auto from = unmapped(remote);
  if (from.is_v4() || from.is_loopback() || from.to_v6().is_link_local())
    return from.to_string();
  auto network = network_of(from.to_v6());
  if (local.is_v6() && network == network_of(local.to_v6()))
    return from.to_string();
  return network.to_string() + "/64";
}

} // namespace waggle::net
