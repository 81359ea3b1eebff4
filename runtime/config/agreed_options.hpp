#pragma once

#include <string>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/config/options.hpp"

namespace waggle {

/// The values that peers that train with `options` must agree on: protocol, strategy, and every
/// option whose row in the table has `agreed`. Fails with ec::bad_config if the agreement is too
/// long to be sent to other peers.
result<run_agreement> training_agreement(const run_options& options, std::uint32_t protocol);
/// The same for peers that average a vector without a model.
result<run_agreement> averaging_agreement(const run_options& options, std::uint32_t protocol);

/// Whether any training option that all peers must agree on was set explicitly in `options`.
bool sets_agreed(const run_options& options);

/// The options (names and values) of a command line that leads to this agreement; defaults are left
/// out. An agreement that was received may contain anything: names that are no agreed option, and
/// values that the option does not accept, are left out, too.
std::vector<std::pair<std::string, std::string>> options_of(const run_agreement& agreement);

} // namespace waggle
