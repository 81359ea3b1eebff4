#include "runtime/net/local_addresses.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include <arpa/inet.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/udp.hpp>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "runtime/core/try.hpp"
#include "runtime/net/dial_policy.hpp"
#include "runtime/net/host_key.hpp"
#include "runtime/net/sockets.hpp"

namespace waggle::net {

namespace {

namespace ip = boost::asio::ip;
using boost::system::error_code;

bool is_v6(const std::string& host) {
  return host.find(':') != std::string::npos;
}

/// 172.17.0.0 to 172.31.255.255: the addresses that Docker gives to bridges first, on each machine
/// the same. The next ones, of 192.168/16, many real networks have.
bool in_container_range(const std::string& host) {
  error_code error;
  auto address = ip::make_address_v4(host, error);
  if (error)
    return false;
  auto bytes = address.to_bytes();
  return bytes[0] == 172 && bytes[1] >= 17 && bytes[1] <= 31;
}

bool contains(const std::vector<std::string>& hosts, const std::string& host) {
  return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

/// Smaller is better.
enum class rank : std::uint8_t { initial_peers, default_route, usual, last_resort };

rank rank_of(const interface_address& a, const machine_addresses& machine) {
  if (contains(machine.towards_initial_peers, a.host))
    return rank::initial_peers;
  // The kernel prefers a temporary address as the source: the interface's others are meant, too.
  if (std::ranges::any_of(machine.all, [&](const interface_address& other) {
        return other.interface == a.interface && is_v6(other.host) == is_v6(a.host)
               && contains(machine.by_default, other.host);
      }))
    return rank::default_route;
  bool by_chance = kind_of(a.host) == host_kind::link_local
                   || (a.bridge && (!a.carrier || in_container_range(a.host)));
  return by_chance ? rank::last_resort : rank::usual;
}

} // namespace

std::vector<std::string> addresses_to_announce(const machine_addresses& machine, bool ipv4,
                                               bool ipv6) {
  struct candidate {
    const interface_address* address;
    rank how;
    bool further = false; // of the same interface and family
  };
  std::vector<candidate> found;
  for (const auto& a : machine.all)
    if (is_v6(a.host) ? ipv6 : ipv4)
      found.push_back({&a, rank_of(a, machine)});
  auto by = [&found](auto key) {
    std::stable_sort(found.begin(), found.end(),
                     [&](const auto& a, const auto& b) { return key(a) < key(b); });
  };
  by([](const candidate& c) {
    return std::tuple{c.address->temporary, c.how, is_v6(c.address->host)};
  });
  std::set<std::pair<std::string, bool>> seen;
  for (auto& c : found)
    c.further = !seen.emplace(c.address->interface, is_v6(c.address->host)).second;
  by([](const candidate& c) { return std::tuple{c.how == rank::last_resort, c.further, c.how}; });
  std::vector<std::string> out;
  for (const auto& c : found)
    if (out.size() < addresses_max && !contains(out, c.address->host))
      out.push_back(c.address->host);
  if (out.empty())
    out.emplace_back(ipv4 ? "127.0.0.1" : "::1");
  return out;
}

std::optional<std::string> only_of_links(const machine_addresses& machine) {
  if (!machine.all.empty() || machine.of_link.empty())
    return std::nullopt;
  return "this machine has only addresses of links, such as " + machine.of_link
         + ": this peer announces loopback, where no other machine reaches it. Give the machine an "
           "address, or announce that one, '["
         + machine.of_link + "]:PORT'; peers that dial it have to add %INTERFACE, too";
}

// -- the operating system ------------------------------------------------------------------------

namespace {

/// Of IPv6 addresses: the flags of linux/if_addr.h, by address.
std::map<ip::address_v6, unsigned> ipv6_flags() {
  // "fe800000000000000000000000000001 02 40 20 80     eth0": address, index, prefix length, scope,
  // flags, interface.
  std::map<ip::address_v6, unsigned> out;
  std::ifstream lines{"/proc/net/if_inet6"};
  std::string digits, index, prefix, scope, flags, interface;
  while (lines >> digits >> index >> prefix >> scope >> flags >> interface) {
    ip::address_v6::bytes_type bytes{};
    if (digits.size() != 2 * bytes.size()
        || (digits + flags).find_first_not_of("0123456789abcdef") != std::string::npos)
      continue;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::uint8_t>(std::stoul(digits.substr(2 * i, 2), nullptr, 16));
    out[ip::address_v6{bytes}] = static_cast<unsigned>(std::stoul(flags, nullptr, 16));
  }
  return out;
}

std::optional<ip::address> address_of(const sockaddr* from) {
  if (from != nullptr && from->sa_family == AF_INET)
    return ip::address_v4{ntohl(reinterpret_cast<const sockaddr_in*>(from)->sin_addr.s_addr)};
  if (from == nullptr || from->sa_family != AF_INET6)
    return std::nullopt;
  ip::address_v6::bytes_type bytes{};
  const auto& raw = reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr.s6_addr;
  std::copy(std::begin(raw), std::end(raw), bytes.begin());
  return ip::address_v6{bytes};
}

/// Our address in packets to `to`; nothing if no route leads there.
std::optional<std::string> source_towards(const ip::address& to) {
  boost::asio::io_context io;
  ip::udp::socket socket{io};
  error_code error;
  ip::udp::endpoint there{to, 9};
  open_socket(socket, there.protocol(), error);
  if (!error)
    socket.connect(there, error); // chooses a route, and sends nothing
  if (error)
    return std::nullopt;
  auto here = socket.local_endpoint(error);
  return error ? std::nullopt : std::optional{here.address().to_string()};
}

} // namespace

machine_addresses read_machine_addresses(const std::vector<endpoint>& initial_peers) {
  // From linux/if_addr.h, which does not go with net/if.h.
  constexpr unsigned temporary = 0x01, duplicate = 0x08, deprecated = 0x20, tentative = 0x40;
  machine_addresses out;
  auto flags = ipv6_flags();
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (auto* i = all; i != nullptr; i = i->ifa_next) {
      auto address = address_of(i->ifa_addr);
      if (!address || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0)
        continue;
      if (lacks_interface(*address)) {
        out.of_link = address->to_string() + "%" + i->ifa_name;
        continue;
      }
      auto known = address->is_v6() ? flags.find(address->to_v6()) : flags.end();
      auto flag = known != flags.end() ? known->second : 0U;
      if ((flag & (duplicate | tentative)) != 0)
        continue;
      std::error_code none;
      out.all.push_back(
        {i->ifa_name, address->to_string(), (i->ifa_flags & IFF_RUNNING) != 0,
         std::filesystem::exists(std::string{"/sys/class/net/"} + i->ifa_name + "/bridge", none),
         (flag & (temporary | deprecated)) != 0});
    }
    freeifaddrs(all);
  }
  // Addresses of documentation, which only a default route leads to.
  for (const auto* outside : {"192.0.2.1", "2001:db8::1"})
    if (auto source = source_towards(ip::make_address(outside)))
      out.by_default.push_back(*source);
  for (const auto& where : initial_peers) {
    auto to = numeric(where.host);
    auto source = to ? source_towards(unmapped(*to)) : std::nullopt;
    if (source && !contains(out.towards_initial_peers, *source))
      out.towards_initial_peers.push_back(*source);
  }
  return out;
}

namespace {

result<std::vector<endpoint>> numeric(const endpoint& where, const host_lookup& lookup) {
  if (auto address = net::numeric(where.host); address && lacks_interface(*address))
    return failure{ec::bad_config,
                   "cannot announce " + to_string(where) + ": " + std::string{add_interface}};
  auto kind = kind_of(where.host);
  if (kind == host_kind::nowhere)
    return failure{ec::bad_config, "cannot announce " + to_string(where)
                                     + ": it is no address of one machine; announce one that "
                                       "others can dial, or none, and the peer finds its own"};
  if (kind != host_kind::name && where.host != "localhost")
    return std::vector{where};
  auto found = lookup(where.host);
  if (!found)
    return failure{ec::bad_config, "cannot announce " + to_string(where) + ": "
                                     + found.error().detail
                                     + "; announce an address, or a name that this machine can "
                                       "resolve"};
  std::vector<endpoint> out;
  for (bool v6 : {false, true}) {
    // Many machines know their own name as 127.0.1.1, where nobody else reaches them.
    auto outside = std::find_if(found->begin(), found->end(), [v6](const auto& address) {
      return address.is_v6() == v6 && !address.is_loopback();
    });
    if (outside != found->end())
      out.push_back({outside->to_string(), where.port});
  }
  if (out.empty())
    out.push_back({found->front().to_string(), where.port});
  return out;
}

} // namespace

result<std::vector<endpoint>> numeric_addresses(const std::vector<endpoint>& given,
                                                const host_lookup& lookup) {
  std::vector<endpoint> out;
  for (const auto& where : given) {
    WAGGLE_TRY(found, numeric(where, lookup));
    for (const auto& each : *found)
      if (out.size() < addresses_max && std::find(out.begin(), out.end(), each) == out.end())
        out.push_back(each);
  }
  return out;
}

bool is_wildcard(std::string_view host) {
  return host == "0.0.0.0" || host == "::";
}

std::vector<endpoint> reached_at(const std::vector<endpoint>& bound,
                                 const machine_addresses& machine) {
  std::vector<endpoint> all;
  std::optional<std::uint16_t> ipv4, ipv6; // the ports of all addresses of a family
  for (const auto& where : bound)
    if (!is_wildcard(where.host))
      all.push_back(where);
    else if (where.host == "::")
      ipv6 = where.port;
    else
      ipv4 = where.port;
  if (ipv6 && !ipv4)
    ipv4 = ipv6; // [::] accepts both
  if (ipv4 || ipv6)
    for (const auto& host : addresses_to_announce(machine, ipv4.has_value(), ipv6.has_value()))
      all.push_back({host, host.find(':') == std::string::npos ? *ipv4 : *ipv6});
  if (all.size() > addresses_max)
    all.resize(addresses_max);
  return all;
}

} // namespace waggle::net
