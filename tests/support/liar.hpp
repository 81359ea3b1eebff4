#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "tests/support/simulation.hpp"

namespace waggle::testing {

/// What a liar claims about itself.
struct false_claim {
  digest branch;
  epoch_id epoch;
  std::uint64_t samples = 0;
  std::uint64_t work = 1'000'000'000;
  std::uint32_t group_size = 64;
  bool ready = true;
  digest parameters{};
  double samples_per_second = 0;
};

/// A Byzantine peer of a simulated swarm. It does the whole handshake, signs what it says, and has
/// one method per lie. It trains nothing, unless it is made from a peer that does.
class liar {
public:
  using index = simulation::index;

  /// Starts a peer of the run without a model, which joins through `through`.
  liar(simulation& sim, const std::vector<index>& through);
  /// `who` is a complete peer, perhaps a member of the group, that lies from now on.
  liar(simulation& sim, index who) : sim_(sim), who_(who) {}

  [[nodiscard]] index who() const { return who_; }
  [[nodiscard]] const peer_id& id() const { return sim_[who_].self->id(); }
  [[nodiscard]] const peer_record& peer() const { return sim_[who_].node.ctx.record; }
  /// Sends `what` to another peer.
  void send(index to, wire::event what);
  /// How many states of ours were opened, and how many of their chunks were asked for.
  [[nodiscard]] std::size_t opened() const { return facts_->opened; }
  [[nodiscard]] std::size_t chunks() const { return facts_->chunks; }

  /// Pushes a signed progress record to all living peers and stores it in the DHT.
  void claim(const false_claim& what);
  /// Repeats the claim every `pause`, so that it never becomes old.
  void keep_claiming(const false_claim& what, milliseconds pause = milliseconds{100});
  /// Claims so many samples toward whatever epoch the others are at, in unsigned progress to all
  /// peers, as soon as it learns of the epoch and again and again.
  void claim_samples(std::uint64_t samples, double samples_per_second);
  void stop() { facts_->stopped = true; }

  /// Admits whoever applies into a group of the two of us at this epoch.
  void admit_at(epoch_id epoch);
  /// Accepts whoever applies, and never sends a plan.
  void admit_never();
  /// Gives this image to whoever asks for a state, as that of `epoch` and any branch.
  void give(epoch_id epoch, std::vector<std::byte> image);

private:
  struct facts {
    std::optional<epoch_id> admits_at;
    bool admits = false;
    epoch_id epoch;
    std::vector<std::byte> image;
    digest content;
    std::size_t opened = 0;
    std::size_t chunks = 0;
    std::uint64_t sequence = 0;
    bool stopped = false;
    bool serving = false;
  };

  void serve_all();
  outbound_answer admit(const inbound_call& call);
  outbound_answer offer(const inbound_call& call) const;

  simulation& sim_;
  index who_;
  std::shared_ptr<facts> facts_ = std::make_shared<facts>();
};

/// The state of a model that was never trained, with all parameters at other values than those of
/// the run: what a liar gives in place of the run's state.
std::vector<std::byte> poisoned_image(const history& past, epoch_id epoch,
                                      std::size_t parameters = 64);
/// Its parameters: a peer that holds them was poisoned.
digest poisoned_parameters(std::size_t parameters = 64);

} // namespace waggle::testing
