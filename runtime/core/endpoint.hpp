#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"

namespace waggle {

/// Where a peer listens. `host` is a name, an IPv4 address, or an IPv6 address without brackets.
struct endpoint {
  std::string host;
  std::uint16_t port = 0;

  friend auto operator<=>(const endpoint&, const endpoint&) = default;
};

/// "host:port", "[v6]:port".
std::string to_string(const endpoint& where);

/// Reads what `to_string` writes. The failure's detail is a sentence for an operator.
result<endpoint> parse_endpoint(std::string_view text);

/// Upper bound for names from the network (the longest DNS name).
constexpr std::size_t host_bytes_max = 253;
/// More addresses than this in one peer record are refused.
constexpr std::size_t addresses_max = 4;

/// The identity and the addresses of a peer. `id` is the SHA-256 of `key`; code that reads a record
/// from the network must check that first (wire/convert does).
struct peer_record {
  peer_id id{};
  public_key key{};
  std::vector<endpoint> addresses{}; // empty: cannot be dialled (client mode, or not known yet)
  bool client_mode = false;

  friend bool operator==(const peer_record&, const peer_record&) = default;
};

} // namespace waggle
