#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/ip/address.hpp>
#include <boost/system/error_code.hpp>

namespace waggle::net {

/// The address that `host` is; nothing: it is a name.
std::optional<boost::asio::ip::address> numeric(std::string_view host);

/// Whether it is an IPv6 address of a link (fe80::/10) that does not say of which one.
bool lacks_interface(const boost::asio::ip::address& address);
constexpr std::string_view add_interface =
  "an address of a link needs the interface of this machine that leads there: add %INTERFACE, as "
  "in fe80::1%eth0";
/// Why this machine cannot connect to `host` or bind it: `add_interface`, or the system's text.
std::string text_of(const boost::system::error_code& error, std::string_view host);

/// The IPv4 address of a peer that came over IPv4 to a socket that accepts both (::ffff:192.0.2.1);
/// any other address as it is.
boost::asio::ip::address unmapped(const boost::asio::ip::address& address);

/// What limits per host count as one host: an IPv4 address, or the /64 of an IPv6 address, because
/// everybody on such a network has 2^64 addresses to choose from ("2001:db8:1:2::/64"). Our own
/// network, that of `local`, has neighbours that are different machines: there it is the address,
/// as for those of loopback and of the link.
/// @param local our address on the same connection.
std::string host_key(const boost::asio::ip::address& remote, const boost::asio::ip::address& local);

} // namespace waggle::net
