#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/endpoint.hpp"
#include "runtime/core/time.hpp"

namespace waggle {

/// Everything that a user can set, typed and within its bounds. All commands share this struct;
/// each reads the fields that it uses. The initializers are the defaults; the option table
/// (options.hpp) has the names, units and bounds.
struct run_options {
  // -- the peer
  std::string run_id = "waggle";
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
  milliseconds duration{0};                   // 0: until stopped
  std::uint64_t event_log = 32 * 1024 * 1024; // bytes; 0: none
  std::uint64_t seed = 0;                     // 0: from the operating system

  // -- training
  std::string strategy = "collaborative";
  bool delay_grad_averaging = false;
  bool delay_optimizer_step = false;
  bool offload_optimizer = false;
  std::uint64_t low_rank = 0; // 0: gradients are averaged as they are
  double min_compression_ratio = 0.5;
  bool delay_state_averaging = true;
  std::uint64_t average_state_every = 1;
  std::uint64_t averaging_steps_period = 10;
  milliseconds averaging_time_period{0};
  std::uint64_t total_steps_in_epoch = 0;      // 0: an epoch ends with each round
  std::string average_opt_statistics = "auto"; // or none, or names separated by commas
  bool average_gradients = false;
  std::uint64_t max_epoch_difference = 1;
  std::string groups = "one"; // or moshpit
  std::uint64_t target_batch_size = 256;
  std::uint64_t micro_batch = 8;
  std::uint64_t epochs = 0; // 0: until stopped
  std::uint64_t passes = 0; // over --data; 0: its samples are drawn at random
  std::string model = "char-gpt";
  std::uint64_t layers = 2;
  std::uint64_t width = 64;
  std::uint64_t heads = 4;
  std::uint64_t context = 64;
  std::string data = "synthetic";
  std::string token_type = "uint16";              // of --data that is tokens; or uint32
  std::uint64_t classes = 0;                      // 0: those of the data
  std::string loss = "cross-entropy";             // of a TorchScript model without its own; or mse
  std::optional<std::filesystem::path> eval_data; // none: the model is not evaluated
  milliseconds eval_every{10'000};
  std::string optimizer = "adamw";
  double lr = 3e-3;
  std::string schedule = "constant";
  std::uint64_t warmup_epochs = 0;
  double weight_decay = 0;
  std::string no_decay = "none";
  std::map<std::string, double> hyper; // hyper-parameters that were set, by name; 1: switched on
  double max_gradient_norm = 0;        // 0: no limit
  std::string device = "auto";
  std::uint64_t replicas = 1;
  std::string devices; // of the replicas, in turn; empty: `device`
  std::string precision = "float32";
  std::string loss_scale = "auto"; // or dynamic, off, or a number
  bool reuse_grad_buffers = false;
  std::uint64_t threads = 1;
  milliseconds step_interval{0};
  milliseconds join_timeout{15'000};
  bool start_alone = false;
  std::string on_split = "continue";
  std::uint64_t min_peers = 1;
  milliseconds wait_for_peers{0}; // 0: without limit
  milliseconds load_state_timeout{600'000};
  milliseconds shutdown_timeout{3'000};
  milliseconds report_expiration{60'000};
  milliseconds min_refresh_period{500};
  milliseconds max_refresh_period{10'000};
  milliseconds default_refresh_period{3'000};
  double expected_drift_peers = 3;
  double expected_drift_rate = 0.2;
  double performance_ema_alpha = 0.1;
  bool resume = true;
  std::string from; // a checkpoint; empty: none
  milliseconds linger{10'000};
  milliseconds checkpoint_interval{5'000};
  std::uint64_t keep = 2; // checkpoints of the history that is being written

  // -- averaging
  std::string codec = "none";
  std::optional<std::uint64_t> part_bytes; // none: the leader of a round chooses it
  std::uint64_t min_group_size = 2;
  std::uint64_t target_group_size = 64;
  std::uint64_t min_contributors = 1;
  milliseconds matchmaking_time{3'000};
  milliseconds averaging_timeout{60'000};
  milliseconds allreduce_timeout{0}; // 0: averaging_timeout
  milliseconds request_timeout{2'000};
  milliseconds stall_timeout{5'000};
  bool error_feedback = false;
  std::string group_bits;
  bool shared_memory = true;
  std::string congestion = "auto";
  std::string aggregator = "mean";
  std::uint64_t faulty_max = 0;
  double check_sums = 0.125; // of the parts; with faulty_max only
  bool auxiliary = false;
  bool reduce_for_clients = true;                              // of a node
  std::uint64_t reduce_elements_max = std::uint64_t{1} << 28U; // of a node
  std::optional<std::uint64_t> bandwidth;                      // bytes per second; none: not known
  std::uint64_t min_vector_size = 0;
  std::optional<std::uint64_t> reduce_threads; // none: as many as cores are free

  // -- waggle average
  std::uint64_t elements = 1U << 20U;
  std::uint64_t rounds = 0; // 0: until stopped
  double weight = 1;
  double alpha = 1;
  bool deltas = false;
  std::string gather;
  std::uint64_t expected_peers = 0;
  bool reuse_group = true;

  // -- waggle swarm
  std::uint64_t peers = 4;
  milliseconds kill_after{0};
  milliseconds join_after{0};

  // -- output
  std::optional<std::filesystem::path> json_file;
  bool json = false;
  std::uint64_t steps = 50;           // waggle bench train, loop
  std::string format = "safetensors"; // waggle export; or torchscript

  /// The options that were set, as text: for the command line with which other peers join.
  std::map<std::string, std::string> given;
  std::vector<std::string> arguments; // positional: ADDR, FILE, NAME
};

} // namespace waggle
