#include "runtime/training/strategies/anchored_learner.hpp"
#include "runtime/training/strategies/strategies.hpp"

namespace waggle {

namespace {

outer_rule rule_of(const strategy_settings& s) {
  auto number = [&](std::string_view of) { return strategies::diloco.number(s, of); };
  return {number("outer-rate"),    number("outer-momentum"),
          number("nesterov") != 0, false,
          number("alpha"),         static_cast<std::size_t>(number("fragments"))};
}

/// The anchor and the outer momentum are equal on all peers; a peer keeps those two vectors more
/// than its own parameters, and during a round its progress and a copy. A round sends one vector of
/// parameters every `steps` passes. An outer step passes over memory twice: it reads mean, momentum
/// and anchor, and writes the last two; then it reads the anchor, the copy of θ and θ, and writes
/// θ. These nine vectors take three times as long as a copy of one. With `alpha`, against INV-5, a
/// part of what a peer has learned of its samples is lost or counts twice; the peers stay closer
/// together. With `fragments`, progress, copy and result are a fragment's; the others keep what
/// they have learned until it is their turn, so the samples of an epoch are in the vectors of
/// several.
strategy make(const strategy_settings& s) {
  auto number = [&](std::string_view of) {
    return static_cast<std::uint64_t>(strategies::diloco.number(s, of));
  };
  lane progress;
  progress.what = lane_content::progress;
  progress.fragments = static_cast<std::size_t>(number("fragments"));
  progress.due = {lane_clock::unit::first_peer, number("steps") / progress.fragments, s.grid()};
  progress.overlap = {lane_overlap::until::own_steps, number("overlap")};
  progress.coding = s.coding;
  progress.merge.how = lane_merge::rule::outer_step;
  return {progress};
}

learner_factory learners(learner_factory make, const strategy_settings& s) {
  return anchored(std::move(make), "diloco", rule_of(s));
}

status check(const strategy_settings& s) {
  auto number = [&](std::string_view of) {
    return static_cast<std::uint64_t>(strategies::diloco.number(s, of));
  };
  auto fragments = number("fragments");
  if (number("steps") % fragments != 0) {
    auto nearest = fragments;
    for (std::uint64_t away = 1; number("steps") % nearest != 0; ++away) // 1 divides all
      nearest = number("steps") % (fragments - away) == 0 || fragments + away > vectors_in_turn_max
                  ? fragments - away
                  : fragments + away;
    return failure{ec::bad_config, "is not possible: " + std::to_string(fragments)
                                     + " fragments do not divide " + std::to_string(number("steps"))
                                     + " steps; use fragments=" + std::to_string(nearest)
                                     + ", or other steps"};
  }
  if (number("overlap") < number("steps") / fragments)
    return done{};
  return failure{ec::bad_config, "is not possible: overlap must be less than steps"
                                   + std::string{fragments > 1 ? " / fragments" : ""}
                                   + ", because the next round would be due before this one is "
                                     "over; lower overlap, or raise steps"};
}

constexpr std::string_view options[]{"passes", "low-rank", "max-epoch-difference",
                                     "averaging-time-period"};

using form = named_number::form;
constexpr named_number numbers[] = {{"steps", form::whole, 1, 0x1p30, 100.0},
                                    {"outer-rate", form::real, 0, 100, 0.7},
                                    {"outer-momentum", form::real, 0, 0.9999, 0.9},
                                    {"nesterov", form::whole, 0, 1, 1.0},
                                    {"overlap", form::whole, 0, 0x1p30, 0.0},
                                    {"alpha", form::real, 0, 0.9999, 0.0},
                                    {"fragments", form::whole, 1, vectors_in_turn_max, 1.0}};

} // namespace

const strategy_row strategies::diloco{
  .name = "diloco",
  .help =
    "Each peer steps at once; when the fastest has made `steps`, an outer optimizer (SGD with "
    "Nesterov momentum) steps with the mean progress of all, for slow links; `overlap`: "
    "passes go on for so many steps meanwhile; `alpha`: the share of its own parameters that a "
    "peer keeps when it gets "
    "the mean, 0: all that it has learned since the round began; `fragments`: rounds average a "
    "part "
    "of the parameters, in turn, so many times as often, which takes less memory.",
  .make = make,
  .rounds = "averages the progress of peers that share one anchor, as the numbers behind its name "
            "say: diloco:steps=N,overlap=N",
  .options = options,
  .numbers = numbers,
  .learners = learners,
  .check = check};

} // namespace waggle
