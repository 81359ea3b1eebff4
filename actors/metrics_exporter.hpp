#pragma once

#include <memory>
#include <optional>
#include <set>

#include <caf/all.hpp>

#include "actors/actors.hpp"
#include "actors/node_context.hpp"
#include "actors/status_board.hpp"

namespace waggle {

/// To itself: write the documents again.
struct refresh_documents {};

struct metrics_exporter_state {
  static inline const char* name = "metrics-exporter";

  std::optional<training_status> training; // none: a peer without a model
  std::optional<helper_status> helper;     // none: it does not reduce for clients
  std::optional<dht_status> dht;           // none: not received yet
  swarm_progress run;
  std::set<peer_id> connected;
  std::uint64_t rounds_complete = 0;
  std::uint64_t rounds_shrunk = 0;
  std::uint64_t rounds_failed = 0;
  steady_time began;
};

using metrics_exporter_impl = metrics_exporter_actor::extend<
  caf::reacts_to<refresh_documents>>::extend_with<dht_listener_actor>;

/// Keeps /api/v1/status, /api/v1/peers and /readyz up to date with the reports of the other actors.
///
/// /readyz: a peer with a trainer is ready while the trainer is in step. A peer without one is
/// ready once it is part of the run: at once if it has no initial peers, otherwise when another
/// peer has answered. A peer that reduces for clients shows for how many.
///
/// /api/v1/status: {"peer","run","version","phase","epoch","global_epoch","samples_toward_epoch",
/// "target_batch_size","loss","first_loss","samples":{"used","dropped"},
/// "rounds":{"complete","shrunk","failed"},"local_fallbacks","state_downloads","steps",
/// "samples_per_second","compute_samples_per_second","learning_rate","last_outcome","parameters",
/// "bytes":{"in","out","shared"},"bandwidth","peers","auxiliaries","reduces_for_clients",
/// "uptime_seconds"}; null if it is not known or has no value yet. "samples_per_second" is the
/// speed that this peer reports to others, waits included, as in /api/v1/peers;
/// "compute_samples_per_second" is that of its passes alone. "peers" train, "auxiliaries" only
/// reduce. "reduces_for_clients": for how many clients a peer without a model reduces now; null: it
/// never does. "bytes": on the wire, and through memory shared with peers on this host (both ways).
/// /api/v1/peers:
/// {"peers":[{"id","addresses","epoch","samples_toward_epoch","samples_per_second","self",
/// "connected","role"}]}; "role": node, client or auxiliary
///
/// `trains`: a trainer will report; until it does, the documents show the phase "starting".
metrics_exporter_impl::behavior_type
metrics_exporter(metrics_exporter_impl::stateful_pointer<metrics_exporter_state> self,
                 node_context ctx, std::shared_ptr<status_board> board, bool trains);

} // namespace waggle

WAGGLE_LOCAL(refresh_documents)
