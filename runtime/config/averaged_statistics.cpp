// Which of the optimizer's statistics the peers average with the parameters.

#include <algorithm>

#include "runtime/config/options.hpp"
#include "runtime/core/named.hpp"
#include "runtime/core/nearest.hpp"
#include "runtime/training/optimizer_table.hpp"
#include "runtime/training/strategy.hpp"

namespace waggle {

namespace {

/// The names of the statistics that the optimizer keeps, of matrices or vectors; of all of them,
/// or of those of one kind.
std::vector<std::string> statistics_of(const run_options& o,
                                       std::optional<state_tensor::kind> of = std::nullopt) {
  std::vector<std::string> names;
  if (const auto* row = find_optimizer(o.optimizer))
    for (const auto& shape : {tensor_shape{2, 2}, tensor_shape{2}})
      for (const auto& kept : row->statistics(optimizer_of(o), shape))
        if ((!of || kept.what == *of) && std::ranges::find(names, kept.name) == names.end())
          names.push_back(kept.name);
  return names;
}

failure bad(std::string why) {
  return {ec::bad_config, std::move(why)};
}

} // namespace

std::vector<std::string> averaged_statistics_of(const run_options& o) {
  std::string_view names = o.average_opt_statistics;
  if (const auto& row = *o.strategy; names == "auto")
    names = optimizer_of(o).amsgrad && !row.averaged_statistics.empty()
              ? "max_exp_avg_sq" // the step divides by its root, not by that of exp_avg_sq
              : row.averaged_statistics;
  std::vector<std::string> found;
  for (auto name : pieces_of(names == "none" ? "" : names, ','))
    if (!name.empty())
      found.emplace_back(name);
  return found;
}

status check_optimizer_of_strategy(const run_options& o) {
  const auto& row = *o.strategy;
  if (!row.optimizer.empty() && o.optimizer != row.optimizer)
    return bad("--strategy " + o.strategy.text() + " is for --optimizer "
               + std::string{row.optimizer}
               + ": use it, or --strategy decentralized, which is for any");
  auto kept = statistics_of(o);
  auto averaged = averaged_statistics_of(o);
  for (auto name = averaged.begin(); name != averaged.end(); ++name) {
    if (std::find(averaged.begin(), name, *name) != name)
      return bad("--average-opt-statistics names " + *name + " twice: leave one out");
    if (std::ranges::find(kept, *name) == kept.end())
      return bad("--average-opt-statistics " + *name + ": " + o.optimizer
                 + (kept.empty() ? " keeps none"
                                 : " keeps " + joined(kept, ", ") + "; the nearest is "
                                     + nearest(*name, kept)));
  }
  return done{};
}

std::string unaveraged_squares(const run_options& o) {
  if (!o.strategy->averages_parameters() || o.average_opt_statistics != "auto"
      || !averaged_statistics_of(o).empty())
    return {};
  auto squares = statistics_of(o, state_tensor::kind::square);
  if (squares.empty())
    return {};
  if (optimizer_of(o).amsgrad) // the step divides by the root of the last one
    squares = {squares.back()};
  return "the peers average parameters, but not " + joined(squares, " and ") + ", by which "
         + o.optimizer
         + " scales the steps of each peer: where their samples differ, they may converge poorly; "
           "--average-opt-statistics "
         + joined(squares, ",") + " on all peers averages that, and none says that this is meant";
}

} // namespace waggle
