#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/net/name_resolver.hpp"

namespace waggle::net {

/// An address of an interface that is up, loopback and addresses of the link (fe80::/10) left out.
struct interface_address {
  std::string interface;
  std::string host;       // numeric
  bool carrier = true;    // the interface is connected to something
  bool bridge = false;    // the interface is a bridge, as container engines make them
  bool temporary = false; // IPv6: soon replaced by another address
};

struct machine_addresses {
  std::vector<interface_address> all;
  std::vector<std::string> towards_initial_peers; // our addresses in packets to them
  std::vector<std::string> by_default;            // our addresses in packets to other networks
  std::string of_link{}; // one of fe80::/10 with its interface, "fe80::1%eth0"; empty: none
};

/// The addresses that others dial, best first and at most addresses_max: those from which this peer
/// reaches initial peers, then those of the default routes, then the others. At the end are those
/// that lead anywhere only by chance: of bridges without carrier or with addresses that container
/// engines give to each machine anew, and self-assigned ones (169.254/16). Of several addresses of
/// one interface and family, one comes before the second ones. Of equals, IPv4 comes first. Only
/// loopback if there is nothing else.
std::vector<std::string> addresses_to_announce(const machine_addresses& machine, bool ipv4,
                                               bool ipv6);

/// A warning for a peer that announces loopback although the machine has addresses of links, which
/// nobody can dial who does not know by which interface.
std::optional<std::string> only_of_links(const machine_addresses& machine);

/// Reads what this machine's interfaces and routes are now. Sends no packets and does not block.
/// `initial_peers`: names among them are not looked up.
machine_addresses read_machine_addresses(const std::vector<endpoint>& initial_peers);

/// The addresses of `given`, each once, at most addresses_max: of a name one of each family,
/// because other peers ask no name servers. Blocks while `lookup` does. Fails with ec::bad_config.
result<std::vector<endpoint>> numeric_addresses(const std::vector<endpoint>& given,
                                                const host_lookup& lookup);

/// "0.0.0.0" or "::", which stand for all addresses of this machine.
bool is_wildcard(std::string_view host);
/// At most addresses_max, at which others reach a peer that is bound to `bound`, which has no
/// names.
std::vector<endpoint> reached_at(const std::vector<endpoint>& bound,
                                 const machine_addresses& machine);

} // namespace waggle::net
