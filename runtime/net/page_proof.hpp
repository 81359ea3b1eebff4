#pragma once

#include <string>
#include <string_view>

#include "runtime/core/time.hpp"
#include "runtime/crypto/run_secret.hpp"

namespace waggle::net {

/// The value of the header `Authorization` with which a client shows that it knows the key of the
/// run, which it does not send. Good for this target, and for a minute: somebody who reads it has
/// read the page, too.
std::string page_proof(const run_secret& run, std::string_view target, swarm_time now);

/// Whether `shown` is one. The two clocks may differ by a minute.
bool proves_page(const run_secret& run, std::string_view target, std::string_view shown,
                 swarm_time now);

} // namespace waggle::net
