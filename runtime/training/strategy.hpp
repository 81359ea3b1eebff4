#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/codec/codec_table.hpp"
#include "runtime/core/time.hpp"
#include "runtime/training/learner_factory.hpp"
#include "runtime/training/named_number.hpp"
#include "runtime/training/schedule_clock.hpp"
#include "runtime/training/strategy_phase.hpp"

namespace waggle {

/// What a round averages.
enum class lane_content : std::uint8_t {
  gradient,   // of the accumulated samples
  parameters, // as they are
  progress,   // anchor − parameters
};

/// When a round is due, counted from one boundary to the next: it ends the epoch.
struct lane_clock {
  enum class unit : std::uint8_t {
    swarm_samples, // of all peers since the last boundary
    first_peer,    // micro-steps of whichever peer first makes `every` of them since the boundary
    each_member,   // micro-steps of every member of the group, except silent ones
  };
  unit counts = unit::swarm_samples;
  std::uint64_t every = 1;
  /// Milliseconds. Not 0: once due, the round waits until the swarm's time is a multiple of this,
  /// so that peers that are due at about the same time begin together.
  std::uint64_t grid = 0;

  friend bool operator==(const lane_clock&, const lane_clock&) = default;
};

/// When the result of a round is merged, i.e. how long this peer trains on while the round runs.
struct lane_overlap {
  enum class until : std::uint8_t {
    own_steps,     // `steps` after it began; 0: the round blocks
    next_boundary, // before the next round begins
    it_arrives,
  };
  until ends = until::own_steps;
  std::uint64_t steps = 0;

  [[nodiscard]] bool blocks() const { return ends == until::own_steps && steps == 0; }

  friend bool operator==(const lane_overlap&, const lane_overlap&) = default;
};

/// How a mean is merged: relative to the snapshot taken when the round began, so that nothing
/// learned since is lost (INV-5).
struct lane_merge {
  enum class rule : std::uint8_t {
    optimizer_step, // with the mean as gradient
    add_change,     // x += mean − snapshot
    outer_step,     // anchor −= rate · mean; x += the anchor's change
    blend, // outer_step at rate 1; then x = (2b·x + P·anchor) / (2b + P) for P contributors
  };
  rule how = rule::optimizer_step;
  std::uint64_t behind = 0; // blend: b, batches that the mean is late

  /// blend: the share of the way to the mean of so many peers, P / (2b + P). 0, which is another
  /// rule, if the mean is not late, and of a peer alone, whose mean is its own older parameters.
  [[nodiscard]] double blend_share(std::size_t peers) const {
    auto p = static_cast<double>(peers);
    return behind > 0 && peers > 1 ? p / (2 * static_cast<double>(behind) + p) : 0;
  }

  friend bool operator==(const lane_merge&, const lane_merge&) = default;
};

/// How the values are shortened for a round, beside the codec of what is sent.
struct lane_coding {
  std::uint32_t rank = 0;    // of the averaged matrices (low_rank.hpp); 0: none is shortened
  double least_saving = 0.5; // the share of a tensor that has to be saved, or it is not shortened

  friend bool operator==(const lane_coding&, const lane_coding&) = default;
};

/// The rounds of a strategy: what is averaged, when, whether training waits, and how the result is
/// used.
struct lane {
  lane_content what = lane_content::gradient;
  /// Parameters only: the optimizer's statistics that are averaged with them, by name.
  std::vector<std::string> statistics;
  /// Parameters only: the rounds also count the steps of all peers (step_count.hpp).
  bool counts_steps = false;
  /// Parameters only: the gradient of each peer's last step is averaged with them, and the change
  /// is added to the gradient of its next step (layers.hpp).
  bool gradients = false;
  /// Progress only: the parameters are dealt to so many vectors (fragments.hpp), of which an epoch
  /// averages one, in turn.
  std::size_t fragments = 1;
  /// Gradients only: a round may begin while the pass still computes what it averages.
  bool in_buckets = false;
  lane_clock due;
  lane_overlap overlap;
  lane_coding coding; // gradients only
  lane_merge merge;

  friend bool operator==(const lane&, const lane&) = default;
};

/// How a run trains. Equal on all its peers.
struct strategy {
  lane averages;
  schedule_clock schedule{}; // what an epoch of the schedule is

  /// Whether the optimizer steps with the gradient of each micro-step at once; otherwise it is
  /// accumulated for a round.
  [[nodiscard]] bool steps_locally() const { return averages.what != lane_content::gradient; }
  /// Whether all peers of an epoch hold the same bytes of the first tensors
  /// (state_table::shared_count), which are then hashed, compared, and what a newcomer needs: not
  /// if each peer's own parameters are averaged.
  [[nodiscard]] bool peers_share_state() const { return averages.what != lane_content::parameters; }

  friend bool operator==(const strategy&, const strategy&) = default;
};

/// The options from which a strategy is made; each strategy uses its own.
struct strategy_settings {
  /// collaborative, local-updates: samples of all peers from one round to the next.
  std::uint64_t target_batch = 256;
  bool delay_gradients = false;       // collaborative: train on while gradients are averaged
  lane_coding coding{};               // collaborative
  bool delay_state = true;            // the others: train on while parameters are averaged
  std::uint64_t steps_period = 10;    // decentralized: own steps from one boundary to the next
  milliseconds time_period{0};        // decentralized: lane_clock::grid
  std::uint64_t epochs_per_round = 1; // local-updates: schedule_clock
  std::uint64_t steps_in_epoch = 0;   // decentralized: schedule_clock
  schedule_unit unit = schedule_unit::automatic; // schedule_clock
  std::vector<std::string> statistics{};
  bool average_gradients = false; // the strategies that average parameters: lane::gradients
  /// Of the strategy itself (strategy_row::numbers), in the order of its row; none: the defaults.
  std::vector<double> numbers{};

  /// lane_clock::grid, of `time_period`.
  [[nodiscard]] std::uint64_t grid() const {
    return static_cast<std::uint64_t>(time_period.count());
  }
};

/// The inputs on which a strategy may depend when it changes from one round to the next.
struct training_history {
  std::span<const float> state; // learner::strategy_state
  /// The round that began last is not merged: its overlap and its merge stay until it is.
  bool in_flight = false;
};

/// A strategy of `waggle train`: everything that the rest of the program knows about it. Each has a
/// file in strategies/.
struct strategy_row {
  std::string_view name;
  std::string_view help; // one sentence
  strategy (*make)(const strategy_settings& settings);
  /// What its rounds average, and when: "averages gradients after each pass", and the options that
  /// say so. For the refusal of an option that is not one of `options`.
  std::string_view rounds;
  /// Its own among the options that only some strategies use.
  std::span<const std::string_view> options;
  std::string_view optimizer{};           // the only one that it is for; empty: any
  std::string_view averaged_statistics{}; // unless others are named
  /// The numbers that may stand behind its name: "diloco:steps=50". Each has a default.
  std::span<const named_number> numbers{};
  /// Makes the learners of this strategy from those that step locally; null: they are as they are.
  learner_factory (*learners)(learner_factory make, const strategy_settings& settings) = nullptr;
  /// Whether numbers fit each other. Fails with ec::bad_config and half a sentence; null: always.
  status (*check)(const strategy_settings& settings) = nullptr;
  /// The strategy from the next round on; null: it never changes.
  strategy (*on_boundary)(strategy now, const strategy_settings& settings,
                          const training_history& history) = nullptr;
  /// Where it is in a schedule of its own. @param state learner::strategy_state; empty: at the
  /// run's beginning. Null: it has none.
  strategy_phase (*phase)(const strategy_settings& settings,
                          std::span<const float> state) = nullptr;
  std::optional<codec_id> codec{}; // of its rounds, unless another one is chosen
  double rate = 0;                 // peak learning rate, unless one is chosen; 0: that of all

  [[nodiscard]] bool uses(std::string_view option) const {
    return std::ranges::find(options, option) != options.end();
  }
  /// Whether the optimizer steps with each pass, instead of once an epoch with a mean gradient.
  [[nodiscard]] bool steps_each_pass() const { return make({}).steps_locally(); }
  /// Whether each peer has parameters of its own, which are averaged.
  [[nodiscard]] bool averages_parameters() const { return !make({}).peers_share_state(); }
  /// Whether epochs end after a number of steps, not of samples.
  [[nodiscard]] bool counts_steps() const { return !uses("target-batch-size"); }
  /// The number with this name. REQUIRES: the row has it.
  [[nodiscard]] double number(const strategy_settings& settings, std::string_view of) const;
};

/// All strategies.
std::span<const strategy_row> strategy_table();
/// The strategy that a text such as "diloco:steps=50" names; null if there is none.
const strategy_row* find_strategy(std::string_view text);

/// A strategy with its numbers, such as "diloco:steps=50".
class strategy_choice {
public:
  /// Of texts in code. REQUIRES: `parse` accepts it.
  strategy_choice(const char* text);
  strategy_choice(const std::string& text) : strategy_choice(text.c_str()) {}
  /// Fails with ec::bad_config and half a sentence.
  static result<strategy_choice> parse(std::string_view text);

  const strategy_row& operator*() const { return *row_; }
  const strategy_row* operator->() const { return row_; }
  /// In the order of the row.
  [[nodiscard]] const std::vector<double>& numbers() const { return numbers_; }
  /// The name, and the numbers that are not the defaults: equal for equal choices.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] strategy make(strategy_settings settings) const {
    settings.numbers = numbers_;
    auto made = row_->make(settings);
    made.schedule.counts = unit(settings.unit);
    return made;
  }
  /// What the schedule of the learning rate counts.
  [[nodiscard]] schedule_unit unit(schedule_unit chosen) const {
    auto usual = row_->phase != nullptr ? schedule_unit::epochs : schedule_unit::rounds;
    return chosen == schedule_unit::automatic ? usual : chosen;
  }
  /// strategy_row::phase; nothing without.
  [[nodiscard]] std::optional<strategy_phase> phase(std::span<const float> state = {}) const;
  /// Whether the run ends with its schedule.
  [[nodiscard]] bool ends() const { return phase().value_or(strategy_phase{}).epochs > 0; }
  /// Its learners from those that step locally.
  [[nodiscard]] learner_factory learners(learner_factory make) const;

  friend bool operator==(const strategy_choice&, const strategy_choice&) = default;

private:
  explicit strategy_choice(const strategy_row& row) : row_(&row) {}

  const strategy_row* row_;
  std::vector<double> numbers_;
};

inline std::string text_of(const strategy_choice& choice) {
  return choice.text();
}
/// The strategies with their numbers, defaults and sentences.
std::string strategy_help();

} // namespace waggle
