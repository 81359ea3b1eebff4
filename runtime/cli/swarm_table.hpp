#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/cli/swarm_summary.hpp"

namespace waggle {

/// The size of a terminal: characters per line, and lines.
struct terminal_size {
  std::size_t columns = 0;
  std::size_t lines = 0;

  friend bool operator==(const terminal_size&, const terminal_size&) = default;
};

/// The live table: titles, then one line per peer. It fits into `room`, so that the next table can
/// be drawn over it: columns are omitted from the right, peers from the end.
std::vector<std::string> live_table(double seconds, const std::vector<swarm_summary::peer>& peers,
                                    terminal_size room);

/// The table of the same peers at the end of the run. Columns that are in both tables mean the
/// same.
std::vector<std::string> summary_table(const std::vector<swarm_summary::peer>& peers,
                                       std::size_t width);

/// A peer's displayed name: the first digits of its id; "?" if the id is not known yet.
std::string short_name(const swarm_summary::peer& peer);
std::string state_of(const swarm_summary::peer& peer);

} // namespace waggle
