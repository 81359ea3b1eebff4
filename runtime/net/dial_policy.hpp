#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/core/endpoint.hpp"

namespace waggle::net {

enum class host_kind : std::uint8_t {
  name,       // needs a name server
  loopback,   // 127/8, ::1
  link_local, // 169.254/16, fe80::/10
  nowhere,    // unspecified, multicast, broadcast
  usual,
};
host_kind kind_of(std::string_view host);
/// Whether this is an address of a home, a company or a carrier, which means nothing outside it.
bool is_of_private_network(std::string_view host);
/// Whether a host needs no resolver.
bool is_numeric(std::string_view host);

/// Which of the addresses that other peers announce this peer dials. Anybody may announce anything:
/// a name would make this peer ask the operator's name server for it, and an address of this host
/// or link may belong to a service that only trusts its neighbours. So only numeric addresses are
/// dialled, and those of loopback and of the link only if this peer is known to be there, too.
/// Addresses that the operator gives are always dialled. Not thread-safe.
class dial_policy {
public:
  /// `own`: where this peer listens, what it announces, and through whom the operator lets it join.
  explicit dial_policy(const std::vector<endpoint>& own);

  void reached_from(std::string_view host);

  [[nodiscard]] bool permits(const endpoint& where) const;

private:
  bool loopback_ = false;
  bool link_local_ = false;
};

} // namespace waggle::net
