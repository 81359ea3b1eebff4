#pragma once

// Internal to runtime/net.

#include <cstdint>
#include <functional>

#include <boost/asio/io_context.hpp>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"
#include "runtime/net/narrow_paths.hpp"

namespace waggle::net {

/// Finds out whether large messages pass to and from a peer: asks its port for a small page, then
/// for a large one with a large request, over a connection of segments of the usual size. Calls
/// `done` once, on the thread of `io`, unless the result is called, which ends it. A peer that is
/// gone, or cut off, answers neither.
std::function<void()> probe_path(boost::asio::io_context& io, const endpoint& where,
                                 milliseconds timeout,
                                 std::function<void(narrow_paths::width)> done);

} // namespace waggle::net
