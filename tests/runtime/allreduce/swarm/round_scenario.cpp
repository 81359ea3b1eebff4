#include "tests/runtime/allreduce/swarm/round_scenario.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "runtime/averaging/part_table.hpp"
#include "tests/runtime/averaging/plans.hpp"
#include "tests/support/all_codecs.hpp"

namespace waggle::testing {

namespace {

using duration = round_net::duration;

constexpr std::array<const char*, fault_kinds> kind_names{
  "crash", "vanish", "nap",   "freeze", "hiccup",    "partition", "half_open", "cut",
  "reset", "slow",   "stuck", "cancel", "break_off", "leave",     "absent"};
constexpr std::array<const char*, moments> moment_names{"deliveries", "prepared", "proposals",
                                                        "promises", "finishes"};
/// The relative frequency of each kind.
constexpr std::array<std::uint64_t, fault_kinds> kind_weights{4, 4, 1, 3, 1, 2, 2, 1,
                                                              3, 1, 1, 2, 1, 1, 1};

class dice {
public:
  explicit dice(std::uint64_t seed) : random_(seed) {}

  std::uint64_t below(std::uint64_t n) { return random_.below(n); }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + random_.below(high - low + 1);
  }
  bool percent(std::uint64_t chance) { return random_.below(100) < chance; }
  double unit() { return random_.unit(); }
  duration span(duration low, duration high) {
    return low
           + duration{static_cast<duration::rep>(random_.unit()
                                                 * static_cast<double>((high - low).count()))};
  }
  template <class Range>
  void shuffle(Range& range) {
    random_.shuffle(range);
  }

private:
  random_source random_;
};

void choose_members(dice& roll, round_plan& plan) {
  for (std::size_t i = 1; i < plan.members.size(); ++i) {
    if (roll.percent(15))
      plan.members[i].mode = member_mode::client;
    else if (roll.percent(12))
      plan.members[i].mode = member_mode::auxiliary;
  }
}

void choose_parts(dice& roll, round_plan& plan) {
  bool large = roll.percent(15);
  plan.part_elements =
    static_cast<std::uint32_t>(large ? roll.between(342, 700) : roll.between(4, 32));
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    bool reduces = plan.members[i].mode != member_mode::client && (i == 0 || !roll.percent(12));
    plan.shares[i] = reduces ? roll.between(1, large ? 1'500 : 100) : 0;
  }
  plan.elements = std::accumulate(plan.shares.begin(), plan.shares.end(), std::uint64_t{0});
  plan.codecs.clear();
  auto left = plan.elements;
  for (auto runs = roll.between(1, 3); left > 0; --runs) {
    auto codec = roll.percent(50) ? codec_id::none : all_codecs()[roll.below(all_codecs().size())];
    auto length = runs <= 1 ? left : roll.between(1, left);
    plan.codecs.push_back({length, codec});
    left -= length;
  }
}

void choose_aggregator(dice& roll, round_plan& plan) {
  if (roll.percent(75))
    return;
  aggregation robust{static_cast<aggregator>(roll.between(1, 4)), 1};
  if (check_aggregation(robust, plan.members.size()))
    plan.reduce_by = robust;
}

/// About how many messages the round takes.
std::uint64_t deliveries_of(const round_plan& plan) {
  auto parts = part_table{plan}.size();
  auto n = plan.members.size();
  return parts * (first_view(plan).contributor_set().size() + n - 2) + n * n;
}

fault_kind choose_kind(dice& roll, bool first) {
  auto all = std::accumulate(kind_weights.begin(), kind_weights.end(), std::uint64_t{0});
  for (;;) {
    auto pick = roll.below(all);
    std::size_t kind = 0;
    while (pick >= kind_weights[kind])
      pick -= kind_weights[kind++];
    if (first || static_cast<fault_kind>(kind) < fault_kind::leave)
      return static_cast<fault_kind>(kind);
  }
}

void choose_moment(dice& roll, const round_scenario& scene, fault& f) {
  auto n = scene.plan.members.size();
  auto point = roll.below(100);
  if (point < 20) {
    f.when = moment::prepared;
    f.count = roll.below(n * n);
  } else if (point < 35) {
    f.when = moment::finish;
    f.count = roll.below(3);
    if (roll.percent(60))
      f.who = the_finisher;
  } else if (point < 50 && !scene.faults.empty()) {
    f.when = roll.percent(50) ? moment::proposal : moment::promise;
    f.count = roll.below(n);
  } else if (point < 65 && !scene.faults.empty() && scene.faults.back().when == moment::delivery) {
    f.count = scene.faults.back().count + roll.below(60);
  } else {
    f.count = roll.below(deliveries_of(scene.plan));
  }
}

fault random_fault(dice& roll, const round_scenario& scene) {
  auto n = scene.plan.members.size();
  fault f{.kind = choose_kind(roll, scene.faults.empty()),
          .who = roll.percent(35) ? 0 : roll.below(n)};
  f.other = (f.who + 1 + roll.below(n - 1)) % n;
  choose_moment(roll, scene, f);
  switch (f.kind) {
    case fault_kind::nap:
    case fault_kind::hiccup:
      f.lasts = roll.span(50ms, 1'200ms);
      break;
    case fault_kind::freeze:
    case fault_kind::partition:
      f.lasts = roll.span(scene.net.detector * 13 / 10, 20s);
      break;
    case fault_kind::slow:
    case fault_kind::stuck: {
      std::size_t parts = 0;
      std::size_t largest = 1;
      part_table table{scene.plan};
      for (std::size_t i = 0; i < table.size(); ++i) {
        if (table[i].default_owner == f.who || table[i].default_owner == f.other)
          ++parts;
        largest = std::max(largest, result_bytes(scene.plan, table[i].codec, table[i].count));
      }
      if (has_pledges(scene.plan)) // a list of digests is a body, too
        largest = std::max(largest, table.size() * digest::size);
      // A part that is checked is also shown: as many bodies as there are contributors.
      auto bodies = has_pledges(scene.plan) ? 2 + n : std::size_t{2};
      // All parts within two stall timeouts; or none within one.
      auto takes =
        f.kind == fault_kind::slow
          ? std::min(2.0, 8.0 / static_cast<double>(bodies * parts + 1)) * roll.unit() + 0.01
          : 10 + 10 * roll.unit();
      f.bytes_per_second = static_cast<double>(largest) / takes;
      break;
    }
    default:
      break;
  }
  if (f.kind == fault_kind::hiccup || f.kind == fault_kind::partition) {
    auto size = 1 + roll.below(n - 1);
    std::vector<std::size_t> everybody(n);
    std::iota(everybody.begin(), everybody.end(), std::size_t{0});
    roll.shuffle(everybody);
    for (std::size_t i = 0; i < size; ++i)
      f.side.insert(everybody[i]);
  }
  return f;
}

} // namespace

const char* to_string(fault_kind kind) {
  return kind_names[static_cast<std::size_t>(kind)];
}

std::string describe(const fault& f) {
  auto text = std::string{to_string(f.kind)} + " of "
              + (f.who == the_finisher ? std::string{"the finisher"} : std::to_string(f.who));
  switch (f.kind) {
    case fault_kind::half_open:
    case fault_kind::cut:
    case fault_kind::reset:
    case fault_kind::slow:
    case fault_kind::stuck:
      text += "-" + std::to_string(f.other);
      break;
    case fault_kind::hiccup:
    case fault_kind::partition:
      text = std::string{to_string(f.kind)} + " {";
      f.side.for_each([&](std::size_t i) { text += " " + std::to_string(i); });
      text += " }";
      break;
    default:
      break;
  }
  if (f.lasts > 0ns)
    text +=
      " for " + std::to_string(std::chrono::duration_cast<milliseconds>(f.lasts).count()) + " ms";
  return text + " after " + std::to_string(f.count) + " "
         + moment_names[static_cast<std::size_t>(f.when)];
}

round_scenario random_scenario(std::uint64_t seed) {
  dice roll{seed};
  round_scenario scene;
  scene.seed = seed;
  auto n = roll.between(4, 16);
  scene.plan = plan_for(n);
  choose_members(roll, scene.plan);
  choose_parts(roll, scene.plan);
  choose_aggregator(roll, scene.plan);
  for (std::size_t i = 0; i < n; ++i) {
    scene.weights.push_back(roll.percent(10)   ? 0.0
                            : roll.percent(40) ? 1.0
                                               : 0.5 + 2 * roll.unit());
    scene.begins.push_back(roll.span(0ms, roll.percent(10) ? 1'000ms : 30ms));
  }
  scene.offload = roll.percent(50);
  scene.config.offload_elements = scene.offload ? 1 : 1U << 30U;
  if (seed % 2 == 1)
    scene.plan.reduce_by.check_share = seed % 4 == 1 ? 1 : 0.25;
  scene.net.members = n;
  scene.net.delay_max = roll.span(200us, roll.percent(30) ? 150ms : 5ms);
  // From "the parts trickle in" to "everything arrives at once".
  scene.net.bytes_per_second = 1e4 * std::pow(10.0, 3 * roll.unit());
  auto largest = std::size_t{4} * scene.plan.part_elements;
  for (const auto& run : scene.plan.codecs)
    largest = std::max(largest, result_bytes(scene.plan, run.codec, scene.plan.part_elements));
  if (has_pledges(scene.plan)) // a list of digests is a body, too
    largest = std::max(largest, part_table{scene.plan}.size() * digest::size);
  scene.net.window_bytes = roll.percent(40) ? largest * roll.between(1, 4) : 32_MiB;
  if (roll.percent(8))
    return scene;
  for (auto faults = roll.percent(50) ? 1 : roll.between(2, 3); faults > 0; --faults)
    scene.faults.push_back(random_fault(roll, scene));
  if (seed % 3 == 0)
    scene.config.keyless_bytes_max = 0; // as for large vectors
  return scene;
}

duration recovery_bound(const fault& f, const round_scenario& scene) {
  auto noticed = scene.net.detector * 6 / 5;
  const auto& config = scene.config;
  switch (f.kind) {
    case fault_kind::crash:
    case fault_kind::leave:
    case fault_kind::cancel:
    case fault_kind::reset:
      return config.takeover_timeout;
    case fault_kind::vanish:
    case fault_kind::half_open:
    case fault_kind::cut:
    case fault_kind::freeze:
    case fault_kind::partition:
      return noticed + config.takeover_timeout;
    case fault_kind::nap:
    case fault_kind::hiccup:
      return f.lasts;
    case fault_kind::slow:
      return 2 * config.stall_timeout;
    case fault_kind::stuck:
    case fault_kind::break_off:
    case fault_kind::absent:
      return 5 * config.stall_timeout + config.takeover_timeout;
  }
  return {};
}

} // namespace waggle::testing
