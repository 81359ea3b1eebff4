#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/net/http.hpp"

namespace waggle::net {

/// Compresses the body of a reply of more than a packet, unless it has a coding already or goes on.
/// For clients that accept gzip.
void compress(http_response& reply);

/// A stream of gzip without an end: this, and then pieces. A client can decompress each as it
/// arrives, and the stream keeps nothing between two. Small pieces are not compressed: a second's
/// news of a peer would cost the peer more than they save.
std::string gzip_begin();
std::string gzip_piece(std::string_view bytes);

/// Of trusted bytes: those that this program, or its build, has compressed.
std::string gunzip(std::span<const unsigned char> bytes);

} // namespace waggle::net
