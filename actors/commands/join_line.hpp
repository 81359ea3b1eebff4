#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/core/endpoint.hpp"

namespace waggle {

/// The command with which others join a peer of this run: its name, an address, and the options of
/// the agreement (null: it has none) that are not the default. Nothing that is a machine's own.
/// `addresses` are the announced ones, `bound` stands in if there are none.
std::string join_line(const std::string& run_id, const run_agreement* agreement,
                      const std::vector<endpoint>& addresses, const endpoint& bound);

/// `text` as one word of a POSIX shell, quoted where it has to be.
std::string shell_word(std::string_view text);

} // namespace waggle
