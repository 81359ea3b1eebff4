#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/agreement/run_agreement.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/crypto/swarm_key.hpp"

namespace waggle {

/// "train" or "average": the command that starts a peer of the run.
std::string_view command_of(const run_agreement* agreement);

/// The command with which other peers join the run: the run's name, the file of its key and the
/// public key of its authority (empty: none), an address, and the options of the agreement (null:
/// none) that differ from their defaults. It contains nothing else that is specific to this
/// machine. `addresses` are the announced ones; `bound` is used if there are none.
std::string join_line(const std::string& run_id, const run_agreement* agreement,
                      const std::vector<endpoint>& addresses, const endpoint& bound,
                      const std::string& key_file = {}, const std::string& authority = {});
/// The same as a run file, with all addresses, the key itself, and the list of members (inline
/// text; empty: none).
std::string invitation(const std::string& run_id, const run_agreement* agreement,
                       const std::vector<endpoint>& addresses, const endpoint& bound,
                       const std::optional<swarm_key>& key, const std::string& authority = {},
                       const std::string& list = {});

/// `text` as one word of a POSIX shell, quoted if necessary.
std::string shell_word(std::string_view text);

} // namespace waggle
