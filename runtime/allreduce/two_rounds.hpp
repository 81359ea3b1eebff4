#pragma once

#include "runtime/allreduce/round_report.hpp"

namespace waggle {

/// One report of an epoch whose group averages in two rounds (runtime/codec/two_round_coding), both
/// of which were committed: that of the second round, with the cost of both, the size of the group
/// with which the first one began, and why it lost members.
///
/// The second mean is a function of the first one. If the first round had no mean (Σ weights is 0),
/// each member would decode the second with a vector of its own, so the epoch has no mean either
/// (INV-4), whatever weights the second round was given.
round_report report_of_two(const round_report& first, round_report second);

} // namespace waggle
