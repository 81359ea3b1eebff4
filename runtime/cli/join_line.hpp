#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/core/endpoint.hpp"

namespace waggle {

/// The command with which other peers join the run: the run's name, an address, and the options of
/// the agreement (null: none) that differ from their defaults. It contains nothing specific to this
/// machine. `addresses` are the announced ones; `bound` is used if there are none.
std::string join_line(const std::string& run_id, const run_agreement* agreement,
                      const std::vector<endpoint>& addresses, const endpoint& bound);

/// `text` as one word of a POSIX shell, quoted if necessary.
std::string shell_word(std::string_view text);

} // namespace waggle
