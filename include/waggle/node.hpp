#pragma once

// A peer without a training loop, inside a service: a part of the DHT, and averagers of the
// service's own vectors. Link waggle::actors.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/service/environment.hpp"
#include "runtime/core/ids.hpp"
#include "runtime/core/result.hpp"
#include "waggle/averager_options.hpp"

namespace waggle {

class running_node;

struct node_options {
  std::string run = "waggle"; // its name; with a key, only a label
  /// The file of the run's key, of which all peers have copies, or the key's text. Empty: the name
  /// is all they need.
  std::filesystem::path swarm_key{};
  /// The public key of whoever keeps the list of members (`waggle members show` prints it). Empty:
  /// whoever knows name or key belongs to the run.
  std::string members{};
  /// The file of the list, or its text, if the initial peers do not have it.
  std::string members_list{};
  /// False: no link is encrypted, which both ends must say.
  bool encrypt = true;
  /// "HOST:PORT" of any peers of the run. Empty: others join through this one.
  std::vector<std::string> initial_peers{};
  /// [::] is all of IPv4 and IPv6. Port 0: a free port (node::address).
  std::vector<std::string> listen{"[::]:0"};
  /// The addresses that other peers dial, if they differ from those in `listen`.
  std::vector<std::string> announce{};
  bool client_mode = false; // only dials, and accepts no connections
  /// The folder for the identity and known addresses; for one peer at a time. Empty: a new
  /// identity, and nothing is stored.
  std::filesystem::path data_dir{};
  /// What must be equal on all peers of the run, by name; a peer with another value is refused.
  std::map<std::string, std::string> agreed{};
  std::vector<averager_options> averagers{};
  /// Which values of the DHT (key, subkey, value) this service believes: it stores no other ones
  /// for anybody, and finds none. Called on the peer's threads; quick, and must not throw. Empty:
  /// all.
  std::function<bool(const std::string&, const std::string&, const std::string&)> accepts{};
  std::chrono::milliseconds shutdown_timeout{5'000}; // of ~node
  std::string log_level = "info";                    // debug, info, warn or error
  environment around{};
};

/// A peer of a run; it leaves when it is destroyed. Thread-safe, except for moves. Installs no
/// signal handlers, uses no global variables, and never ends the process.
class node {
public:
  /// Starts to listen and to look for the run. Fails with a sentence, and then nothing runs.
  static result<node> start(const node_options& options);
  ~node();
  node(node&&) noexcept = default;
  node& operator=(node&&) noexcept;

  [[nodiscard]] const peer_id& id() const;
  /// "HOST:PORT" on which this peer listens, the first if there are several.
  [[nodiscard]] std::string address() const;
  /// Those at which others reach it now.
  [[nodiscard]] std::vector<std::string> addresses() const;
  /// Waits until one of the initial peers has answered, if there are any. Fails with ec::timeout
  /// and the reason, or with ec::shutting_down.
  [[nodiscard]] status wait_until_ready(std::chrono::milliseconds timeout) const;
  /// The JSON that this peer serves as /api/v1/status.
  [[nodiscard]] std::string status_json() const;
  /// Says goodbye, ends the actors and takes the metrics out of the registry. Fails with
  /// ec::timeout; the peer then ends later, and another call waits for that. Once it has ended,
  /// requests fail with ec::shutting_down.
  status leave(std::chrono::milliseconds timeout = std::chrono::seconds{5});

  /// For the classes that use this peer.
  [[nodiscard]] const std::shared_ptr<running_node>& running() const { return running_; }

private:
  explicit node(std::shared_ptr<running_node> running) : running_(std::move(running)) {}

  std::shared_ptr<running_node> running_;
};

} // namespace waggle
