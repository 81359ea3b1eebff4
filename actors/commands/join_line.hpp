#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/run_options.hpp"

namespace waggle {

/// The command with which others join a peer started with `options`: it says what all peers of a
/// run have to say alike (run, model, sizes, codec, …) and leaves out what is this machine's own
/// (device, threads, folders). `addresses` are the announced ones, `bound` stands in if there are
/// none.
std::string join_line(const run_options& options, const std::string& command_name,
                      const std::vector<endpoint>& addresses, const endpoint& bound);

/// `text` as one word of a POSIX shell, quoted where it has to be.
std::string shell_word(std::string_view text);

} // namespace waggle
