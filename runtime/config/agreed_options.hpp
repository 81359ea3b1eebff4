#pragma once

#include <string>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/config/options.hpp"

namespace waggle {

/// What peers that train with `options` must have alike: protocol, strategy, and every option whose
/// row in the table says `agreed`. Fails with ec::bad_config if it is too long to be told to
/// others.
result<run_agreement> training_agreement(const run_options& options, std::uint32_t protocol);
/// The same of peers that average a vector without a model.
result<run_agreement> averaging_agreement(const run_options& options, std::uint32_t protocol);

/// Whether the options that `options` were made from say anything about training that all peers
/// must have alike.
bool says_agreed(const run_options& options);

/// The options of a command line that leads to this agreement, with what is the default left out:
/// names and values. What a peer may have made up (a name that is no such option, a value that the
/// option does not take) is left out, too.
std::vector<std::pair<std::string, std::string>> options_of(const run_agreement& agreement);

} // namespace waggle
