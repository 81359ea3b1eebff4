#pragma once

// Contains no torch type. The optimizer that makes a loop a peer is in trainer/optimizer.hpp.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/service/environment.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "runtime/status/peer_status.hpp"

namespace waggle {

/// What determines the learning rate of a loop's optimizer.
enum class rate_owner : std::uint8_t {
  /// The options of the optimizer, which the loop may change, e.g. by a scheduler of torch::optim.
  optimizer = 0,
  /// The run: `swarm_options::more` contains "lr", "schedule" and "warmup-epochs", as for `waggle
  /// train`. The rate is written into the optimizer's options before each update; each parameter
  /// group keeps its ratio to the first one's rate.
  run
};

/// The options of a loop that is a peer of a run. Two peers compare the options that must be equal
/// when they connect, also with peers of `waggle train`. A peer with a different value is refused;
/// the message contains the name of the option and both values.
struct swarm_options {
  std::string run = "waggle"; // its name; with a key, only a label
  /// The file of the run's key, of which all peers have copies. Empty: the name is all they need.
  std::string swarm_key{};
  /// The public key of whoever keeps the list of members (`waggle members show` prints it). Empty:
  /// whoever knows name or key belongs to the run.
  std::string members{};
  /// The file of the list, if the initial peers do not have it.
  std::string members_list{};
  /// "HOST:PORT" of any peers of the run. Empty: those in WAGGLE_INITIAL_PEERS, INITIAL_PEERS or
  /// PL_INITIAL_PEERS of the environment, the first that is set. None there either: this peer
  /// starts the run.
  std::vector<std::string> initial_peers{};
  /// The addresses to listen on, separated by commas; [::] is all of IPv4 and IPv6. Port 0: a free
  /// port, which the log contains.
  std::string listen = "[::]:0";
  /// The addresses that other peers dial, if they differ from those in `listen`.
  std::string announce{};
  /// The folder for the identity, checkpoints and known addresses; for one process at a time.
  /// Empty: .waggle/TAG, or .waggle/TAG-2, … if another process uses it; TAG stands for the run.
  std::filesystem::path data_dir{};
  std::string log_level = "info"; // debug, info, warn or error

  // -- equal on all peers
  /// A strategy of `waggle train`. "collaborative": the peers make one optimizer step with the mean
  /// of all gradients. "local-updates", "decentralized", "decentralized-sgd" or
  /// "decentralized-adam": the optimizer steps with each gradient of this loop, and the peers
  /// average their parameters.
  std::string strategy = "collaborative";
  /// Samples of the whole swarm per update, or per average of the parameters (with
  /// "average-state-every" in `more`, an average comes after so many times as many).
  /// decentralized-* count steps instead: leave it out, and set "averaging-steps-period" in `more`.
  std::uint64_t target_batch_size = 256;
  /// Updates, or averages (with "average-state-every": times target_batch_size samples); 0: until
  /// all leave, with shards until their passes are complete, with "daso" until its epochs are over.
  std::uint64_t max_epochs = 0;
  /// The name of the model. "mlp" and "char-gpt": the same function and tensors as the model of
  /// that name in `waggle train`, with "layers", "width", "heads" and "context" in `more`. Any
  /// other text: a model of your own. Empty: identified by the names and shapes of its parameters.
  std::string model{};
  /// The name of the training data: "synthetic" as in `waggle train`, that of its files as in the
  /// join line, or any other text.
  std::string data = "own";
  rate_owner learning_rate = rate_owner::optimizer;
  /// If the optimizer owns the learning rate: a name for its schedule. Peers compare this name and
  /// the initial learning rate; also, whoever owns it, the ratios of the parameter groups' rates.
  std::string schedule = "constant";

  /// Peers compare the values of parameters that nobody trains, of which a digest is made once.
  bool compares_frozen = true;

  // -- of this peer only
  /// If initial peers or known addresses exist: how long to look for the run. After that, this peer
  /// starts the run if `start_alone` is set or it has a checkpoint. Otherwise it goes on looking;
  /// if no address has answered for forty times as long (ten minutes), `step` throws swarm_error:
  /// the run has ended, or has not begun.
  std::chrono::milliseconds join_timeout{15'000};
  bool start_alone = false;
  /// Resumes from the newest checkpoint in data_dir, and writes checkpoints.
  bool resume = true;

  /// Any other options of `waggle train` by name, e.g. {"codec", "float16"}.
  std::map<std::string, std::string> more{};

  /// The actor system, registry, log and clock of the process that the loop is a part of.
  environment around{};

  /// The options in a run file, such as `waggle invite` prints. Fails with a sentence.
  static result<swarm_options> from(const std::filesystem::path& run_file);
};

/// The state of the run as this peer knows it.
struct swarm_status {
  std::uint64_t epoch = 0; // updates, or averages; `step` may apply the last one later
  bool finished = false;   // the last update of the run is applied, or this peer leaves by a notice
  std::uint32_t group_size = 0; // peers that average with this one, itself included
  // offered = used + dropped + pending
  std::uint64_t samples_offered = 0; // passed to `step`, or kept by the process before this one
  std::uint64_t samples_used = 0;    // of these, samples that entered an update
  std::uint64_t samples_dropped = 0; // of these, samples that entered none and never will
  std::uint64_t samples_pending = 0; // all others; at the end: kept in data_dir for the next start
  std::uint64_t state_downloads = 0; // from other peers
  std::uint64_t rounds = 0;          // rounds whose mean this peer applied
  std::string waiting_for;           // empty: this peer does not wait
  double loss = 0;                   // smoothed; NaN before the first step
  /// Where the schedule of "daso" stands; none: the strategy has none.
  std::optional<strategy_phase> strategy;
  /// Steps from the copy that a round averaged until its mean was merged, of the last one.
  std::optional<std::uint64_t> mean_age;
  digest parameters; // of those after the last update
  /// With shards: how often the samples of each pass have entered an update; the last one is not
  /// complete.
  std::vector<pass_seen> passes;
};

/// Thrown by `step` when this peer cannot go on: all initial peers refuse it, none of them has
/// answered for long (swarm_options::join_timeout), it has waited as long while its thread has
/// other loops, which cannot step meanwhile, or it has ended.
class swarm_error final : public std::runtime_error {
public:
  explicit swarm_error(failure why) : std::runtime_error(why.detail), code_(why.code) {}
  [[nodiscard]] ec code() const { return code_; }

private:
  ec code_;
};

class swarm_session;

/// A handle to this process's peer of a run; copies refer to the same peer. The peer neither
/// listens nor dials before a waggle::optimizer is constructed with it, because peers compare
/// optimizers, too. Use it from one thread, apart from wait_until_ready and notice; any may destroy
/// it.
class swarm {
public:
  explicit swarm(std::shared_ptr<swarm_session> session) : session_(std::move(session)) {}

  /// Number of updates (or averages) of the run so far, as this peer knows it.
  [[nodiscard]] std::uint64_t epoch() const { return status().epoch; }
  /// Whether the last update of the run is applied, so that nothing is left to compute.
  [[nodiscard]] bool finished() const { return status().finished; }
  /// Asks the trainer actor of this process, never the network; takes some ten microseconds. After
  /// the optimizer was destroyed: returns the last status.
  [[nodiscard]] swarm_status status() const;

  /// "HOST:PORT" on which this peer listens; empty before an optimizer was constructed with it, and
  /// for a client.
  [[nodiscard]] std::string address() const;
  /// The addresses that other peers dial: swarm_options::initial_peers of the next one. Empty as
  /// `address` is.
  [[nodiscard]] std::vector<std::string> addresses() const;
  /// Waits until this peer is in step with the run, which only the loop's calls of `step` make it.
  /// For other threads of a service. Fails with ec::timeout and the reason, with ec::not_ready if
  /// no optimizer was constructed with it yet, or with ec::shutting_down.
  [[nodiscard]] waggle::status wait_until_ready(std::chrono::milliseconds timeout) const;

  /// The machine of this peer will be taken away so soon, 1 s to 1 h: from now on the peer computes
  /// nothing new, and `finished` becomes true when its samples are in an update, at the latest when
  /// the time is over. Of several notices, the shortest counts. From any thread. Fails with a
  /// sentence.
  waggle::status notice(std::chrono::milliseconds within) const;

  /// For waggle::optimizer.
  [[nodiscard]] swarm_session& session() const { return *session_; }
  [[nodiscard]] const std::shared_ptr<swarm_session>& shared_session() const { return session_; }

private:
  std::shared_ptr<swarm_session> session_;
};

/// Checks the options, locks the data folder, and reads or creates the identity of the peer. Fails
/// with a sentence for the operator. Installs no signal handlers, uses no global variables, and
/// never ends the process.
result<swarm> join(const swarm_options& options);

} // namespace waggle
