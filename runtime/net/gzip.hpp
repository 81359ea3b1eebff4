#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/net/http.hpp"

namespace waggle::net {

/// Compresses the body of a reply of more than a packet, unless it has a coding already or goes on.
/// For clients that accept gzip.
void compress(http_response& reply);

/// Of trusted bytes: those that this program, or its build, has compressed.
std::string gunzip(std::span<const unsigned char> bytes);

} // namespace waggle::net
