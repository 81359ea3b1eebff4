#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/allreduce/averaging_config.hpp"
#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"
#include "runtime/crypto/swarm_key.hpp"
#include "runtime/matchmaking/matchmaking_config.hpp"
#include "runtime/progress/progress_ledger.hpp"
#include "runtime/training/learner_options.hpp"
#include "runtime/training/schedule.hpp"
#include "runtime/training/training_options.hpp"

namespace waggle {

/// What a peer's link carries, in each direction.
struct link_speed {
  double bits_per_second = 50e6;
  double delay_seconds = 0.02;

  friend bool operator==(const link_speed&, const link_speed&) = default;
};

/// Everything that a user can set, as values within their bounds. All commands share this struct;
/// each reads the fields that it uses. The initializers, here and in the parts, are the defaults;
/// the option table (options.hpp) has the names, units and bounds.
struct run_options : learner_options, training_options {
  // -- the peer
  std::string run_id = "waggle";        // with a key, only a label
  std::string swarm_key;                // a file, or the key as a run file has it; empty: none
  std::optional<waggle::swarm_key> key; // that of `swarm_key` (load_key)
  std::string members;      // public key of whoever keeps the list of members; empty: no list
  std::string members_list; // a file, or the list as a run file has it; empty: none
  std::vector<endpoint> listen{{"::", 7700}}; // at least one
  std::vector<endpoint> announce;             // empty: what it listens on
  std::vector<endpoint> initial_peers;
  bool client_mode = false;
  /// Absolute, once the options are resolved. Unless it is set, a peer takes a folder in it
  /// (default_folder).
  std::filesystem::path data_dir = ".waggle";
  std::optional<std::filesystem::path> identity; // default: <data_dir>/identity.pem
  std::string log_level = "info";
  std::string log_format = "text";
  std::string pages = "all";                  // or local, none
  bool encrypts = true;                       // links to other machines
  bool maps_ports = true;                     // asks routers, if others do not reach this peer
  milliseconds duration{0};                   // 0: until stopped
  std::uint64_t event_log = 32 * 1024 * 1024; // bytes; 0: none
  std::uint64_t seed = 0;                     // 0: from the operating system

  // -- training
  std::string average_opt_statistics = "auto"; // or none, or names separated by commas
  std::uint64_t target_batch_size = 256;       // samples of all peers in an epoch
  std::uint64_t epochs = 0;                    // 0: until stopped
  std::uint64_t passes = 0;                    // over --data; 0: its samples are drawn at random
  milliseconds eval_every{10'000};
  std::string optimizer = "adamw";
  double lr = 3e-3;
  std::vector<schedule_part> schedule{{&schedule_table().front(), {}}}; // constant
  std::uint64_t warmup_epochs = 0;
  double weight_decay = 0;
  std::string no_decay = "none";
  std::map<std::string, double> hyper; // hyper-parameters that were set, by name; 1: switched on
  double max_gradient_norm = 0;        // 0: no limit
  ledger_options ledger;               // without its target
  milliseconds report_expiration{60'000};
  double performance_ema_alpha = 0.1;
  milliseconds shutdown_timeout{3'000};
  bool resume = true;
  bool share_state = true;
  double share_priority = 0;
  std::string from; // a checkpoint; empty: none
  milliseconds linger{10'000};
  milliseconds leave_within{0}; // of a notice; 0: signals are none
  std::string notice_url;       // empty: no page is asked for one
  std::string instead_of;       // a peer's id; empty: this peer's own
  std::uint64_t keep = 2;       // checkpoints of the history that is being written

  // -- averaging
  /// Of every vector, without what is its own or follows from other options (averaging_from).
  matchmaking_config matchmaking;
  averaging_config averaging;
  bool trust_members = false;              // their rounds check nothing
  double check_sums = 0.125;               // of the parts; with faulty_max only
  std::optional<std::uint64_t> part_bytes; // none: the leader of a round chooses it
  milliseconds allreduce_timeout{0};       // 0: averaging_timeout
  std::string group_bits;
  bool shared_memory = true;
  std::string congestion = "auto";
  bool reduce_for_clients = true;                              // of a node
  std::uint64_t reduce_elements_max = std::uint64_t{1} << 28U; // of a node
  std::optional<std::uint64_t> bandwidth;                      // bytes per second; none: not known
  std::optional<std::uint64_t> reduce_threads;                 // none: as many as cores are free

  // -- waggle members
  std::string authority_key; // a file
  std::string until;         // a date

  // -- waggle average
  std::uint64_t elements = 1U << 20U;
  std::uint64_t rounds = 0; // 0: until stopped
  double weight = 1;
  bool deltas = false;
  std::string gather;
  std::uint64_t expected_peers = 0;
  bool reuse_group = true;

  // -- waggle swarm
  std::uint64_t peers = 4;
  milliseconds kill_after{0};
  milliseconds join_after{0};

  // -- waggle plan
  link_speed link;
  std::optional<std::uint64_t> trained_values;
  std::uint64_t frozen_values = 0;
  milliseconds step_time{400};
  std::uint64_t memory = 0; // of a peer; 0: not known

  // -- output
  std::string curve; // of `waggle status`; empty: none
  std::optional<std::filesystem::path> json_file;
  bool json = false;
  std::uint64_t steps = 50;                  // waggle bench train, loop
  std::string export_format = "safetensors"; // waggle export; or torchscript

  // -- waggle replay
  std::string since; // a time in its logs; empty: from the beginning
  std::string only;  // a group of events (event_types); empty: what matters

  /// The options that were set, as text: for the command line with which other peers join.
  std::map<std::string, std::string> given;
  std::vector<std::string> arguments; // positional: ADDR, FILE, NAME

  /// What tells the run from others, in records and names of folders.
  [[nodiscard]] std::string run() const { return key ? run_id_of(*key) : run_id; }
  /// Samples of all peers from one average to the next, with strategies that count samples.
  [[nodiscard]] std::uint64_t samples_per_round() const {
    return target_batch_size * how.epochs_per_round;
  }
  [[nodiscard]] bool run_ends() const { return epochs > 0 || passes > 0 || strategy.ends(); }
  /// Of the run, --epochs in number unless --average-state-every is set; 0: no end.
  [[nodiscard]] std::uint64_t rounds_of_run() const { return epochs / how.epochs_per_round; }
};

} // namespace waggle
