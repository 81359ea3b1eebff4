#pragma once

#include <memory>

#include "runtime/net/http.hpp"
#include "runtime/watch/replay.hpp"

namespace waggle {

/// GET / and the files of the page, and /api/v1/events[?QUERY] (replay_request), to this machine
/// only: a recording names its run, which strangers must not learn.
net::http_response replay_page(const std::shared_ptr<const recording>& from,
                               const net::http_request& request);

} // namespace waggle
