#pragma once

#include <string>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/http.hpp"

namespace waggle::net {

/// GETs `target` ("/api/v1/status") from another peer's port. Blocks for at most `timeout`.
/// Fails with ec::unreachable (no connection), peer_lost (nothing listens there), timeout (a
/// connection, and no answer) or malformed.
result<http_response> http_get(const endpoint& where, const std::string& target,
                               milliseconds timeout);

} // namespace waggle::net
