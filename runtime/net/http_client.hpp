#pragma once

#include <optional>
#include <string>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/time.hpp"
#include "runtime/crypto/swarm_key.hpp"
#include "runtime/net/http.hpp"

namespace waggle::net {

/// GETs `target` ("/api/v1/status") from another peer's port. Blocks for at most `timeout`.
/// `encrypted`: asks over TLS, and believes every certificate. With a `key`, asks over TLS, too,
/// shows that it knows it, and takes pages only from a peer that knows it, too (page_proof.hpp): a
/// refusal without that proof has no body.
/// With a `fingerprint` ("AB:CD:…"), asks over TLS, and only a peer whose certificate has that
/// SHA-256: nothing is sent to another.
/// Fails with ec::unreachable (no connection), peer_lost (nothing listens there), timeout (a
/// connection, and no answer), malformed or bad_signature (a page without that proof, or another
/// certificate).
result<http_response> http_get(const endpoint& where, const std::string& target,
                               milliseconds timeout,
                               const std::optional<swarm_key>& key = std::nullopt,
                               bool encrypted = false, const std::string& fingerprint = {});

} // namespace waggle::net
